package metrics

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/push"
)

const pushLimit = 10 * time.Second

// Push sends the metrics of the default registry to a Pushgateway, for a job
// that ends before anyone scrapes it, and replaces what the gateway has of the
// job. It gives up after ten seconds or when ctx ends. The error does not show
// the password of the address; it should be logged and fail nothing.
func Push(ctx context.Context, gateway, job string) error {
	address, err := url.Parse(gateway)
	if err != nil {
		// The error of Parse quotes the address, with its password.
		return &DeliveryError{To: "the Pushgateway", Err: errors.New("its address is not a URL")}
	}
	user := address.User
	address.User = nil
	pusher := push.New(address.String(), job).Gatherer(prometheus.DefaultGatherer).Client(&http.Client{Timeout: pushLimit})
	if password, has := user.Password(); has {
		pusher.BasicAuth(user.Username(), password)
	}
	if err := pusher.PushContext(ctx); err != nil {
		return &DeliveryError{To: address.Redacted(), Err: err}
	}
	return nil
}

// WriteTextfile writes the metrics of the default registry to a file, in one
// step, for the textfile collector of the node exporter, which takes files that
// end in .prom.
func WriteTextfile(path string) error {
	if err := prometheus.WriteToTextfile(path, prometheus.DefaultGatherer); err != nil {
		return &DeliveryError{To: path, Err: err}
	}
	return nil
}

// DeliveryError says that the metrics of a job did not arrive. The work of the
// job is not touched by it.
type DeliveryError struct {
	To  string // where they were sent, without credentials
	Err error
}

func (e *DeliveryError) Error() string {
	return "metrics were not delivered to " + e.To + ": " + e.Err.Error()
}

func (e *DeliveryError) Unwrap() error { return e.Err }
