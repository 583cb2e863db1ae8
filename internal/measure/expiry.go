package measure

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ShowExpiry registers when the certificate that a daemon shows ends. Its name has the daemon's: alerts come with each daemon, and are on those of its kind alone.
func ShowExpiry(r prometheus.Registerer, daemon string, ends func() time.Time) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "slurmtide_" + daemon + "_certificate_expiry_timestamp_seconds", Help: "When the certificate in --tls-cert expires.",
	}, func() float64 { return float64(ends().Unix()) }))
}
