package metrics

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/push"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const pushLimit = 10 * time.Second

// Push sends the metrics of the default registry to a Pushgateway, for a job
// that ends before it is scraped, and replaces those of the same names that the
// job has there. Others stay: what a process does not know, such as the last
// success where it failed before it could read its journal, is what an earlier
// one knew. Processes of one job replace each other's metrics, so each thing
// that runs on its own needs a job name of its own.
//
// Push gives up after ten seconds or when ctx is done. The error does not
// contain the password of the address; log it, but do not fail the job.
func Push(ctx context.Context, gateway, job string) error {
	address, err := url.Parse(gateway)
	if err != nil {
		// The error of Parse quotes the address, with its password.
		return &DeliveryError{To: "the Pushgateway", Err: errors.New("its address is not a URL")}
	}
	if address.RawQuery != "" || address.Fragment != "" {
		// The errors of the client would quote them.
		return &DeliveryError{To: "the Pushgateway", Err: errors.New("its address has a query or a fragment")}
	}
	user := address.User
	address.User = nil
	pusher := push.New(address.String(), job).Gatherer(prometheus.DefaultGatherer).
		Client(&http.Client{Timeout: pushLimit})
	if password, has := user.Password(); has {
		pusher.BasicAuth(user.Username(), password)
	}
	if err := pusher.AddContext(ctx); err != nil {
		return &DeliveryError{To: address.Redacted(), Err: err}
	}
	return nil
}

// WriteTextfile writes the metrics of the default registry to a file,
// atomically, for the textfile collector of the node exporter, which reads
// files that end in .prom. As with Push, what the process does not know about
// runs stays as it is in the file.
func WriteTextfile(path string) error {
	all := prometheus.Gatherers{prometheus.DefaultGatherer, keptRunMetrics(path)}
	if err := prometheus.WriteToTextfile(path, all); err != nil {
		return &DeliveryError{To: path, Err: err}
	}
	return nil
}

// keptRunMetrics gathers what a file says about runs, where this process does
// not know it. A file that is missing or that cannot be read says nothing.
func keptRunMetrics(path string) prometheus.GathererFunc {
	return func() ([]*dto.MetricFamily, error) {
		old := readRunMetrics(path)
		known, err := prometheus.DefaultGatherer.Gather()
		for _, family := range known {
			delete(old, family.GetName())
		}
		return slices.Collect(maps.Values(old)), err
	}
}

// readRunMetrics returns the metrics about runs in a file, by name.
func readRunMetrics(path string) map[string]*dto.MetricFamily {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(file)
	if err != nil {
		return nil
	}
	maps.DeleteFunc(all, func(name string, _ *dto.MetricFamily) bool {
		return !slices.Contains(Ingest.runs.names, name)
	})
	return all
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
