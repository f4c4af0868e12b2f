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
// that ends before it is scraped, and replaces the job's metrics there. It
// gives up after ten seconds or when ctx is done. The error does not contain
// the password of the address; log it, but do not fail the job.
func Push(ctx context.Context, gateway, job string) error {
	address, err := url.Parse(gateway)
	if err != nil {
		// The error of Parse quotes the address, with its password.
		return &DeliveryError{To: "the Pushgateway", Err: errors.New("its address is not a URL")}
	}
	user := address.User
	address.User = nil
	pusher := push.New(address.String(), job).Gatherer(prometheus.DefaultGatherer).
		Client(&http.Client{Timeout: pushLimit})
	if password, has := user.Password(); has {
		pusher.BasicAuth(user.Username(), password)
	}
	if err := pusher.PushContext(ctx); err != nil {
		return &DeliveryError{To: address.Redacted(), Err: err}
	}
	return nil
}

// WriteTextfile writes the metrics of the default registry to a file,
// atomically, for the textfile collector of the node exporter, which reads
// files that end in .prom.
func WriteTextfile(path string) error {
	if err := prometheus.WriteToTextfile(path, prometheus.DefaultGatherer); err != nil {
		return &DeliveryError{To: path, Err: err}
	}
	return nil
}

// DeliveryError reports that the metrics of a job were not delivered. The job's
// own work is not affected.
type DeliveryError struct {
	To  string // the destination, without credentials
	Err error
}

func (e *DeliveryError) Error() string {
	return "metrics were not delivered to " + e.To + ": " + e.Err.Error()
}

func (e *DeliveryError) Unwrap() error { return e.Err }
