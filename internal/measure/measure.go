// Package measure has what metrics of all daemons have in common: histograms of times, what led to a figure, and requests to the two APIs.
package measure

import (
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Times are the options of a histogram of times in seconds. Beside the classic buckets it has native ones, which a Prometheus that asks for them gets: each
// at most a tenth wider than the one before, and 100 at most, so that a series is a few kB. They become fewer where that does not suffice, for an hour at least.
func Times(name, help string, buckets ...float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}
}

// requestLabel is the label of exemplars.
const requestLabel = "request_id"

// Observe notes a time, and as its exemplar the request of the spool that it is of, if there is one.
func Observe(o prometheus.Observer, took time.Duration, request string) {
	e, takes := o.(prometheus.ExemplarObserver)
	if fits := len(requestLabel)+utf8.RuneCountInString(request) <= prometheus.ExemplarMaxRunes; !takes || request == "" || !fits || !utf8.ValidString(request) {
		o.Observe(took.Seconds())
		return
	}
	e.ObserveWithExemplar(took.Seconds(), prometheus.Labels{requestLabel: request})
}
