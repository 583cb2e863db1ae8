package cli

import (
	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/scaler/ask"
)

// ScalerCAFlag is --scaler-ca, beside --scaler.
func ScalerCAFlag() urfave.Flag {
	return &urfave.StringFlag{Name: "scaler-ca", TakesFile: true, EnvVars: []string{"SLURMTIDE_SCALER_CA"}, Usage: "CA of the scaler's certificate, if --scaler is https:// (default: those that the system knows)"}
}

// ScalerCertFlag is --scaler-cert.
func ScalerCertFlag() urfave.Flag {
	return &urfave.StringFlag{Name: "scaler-cert", TakesFile: true, EnvVars: []string{"SLURMTIDE_SCALER_CERT"}, Usage: "certificate to show the scaler, if it has --tls-client-ca"}
}

// ScalerKeyFlag is --scaler-key.
func ScalerKeyFlag() urfave.Flag {
	return &urfave.StringFlag{Name: "scaler-key", TakesFile: true, EnvVars: []string{"SLURMTIDE_SCALER_KEY"}, Usage: "its key"}
}

// Scaler is the one that --scaler names.
func Scaler(c *urfave.Context) (ask.Scaler, error) {
	s, err := ask.At(c.String("scaler"), ask.TLS{CA: c.String("scaler-ca"), Cert: c.String("scaler-cert"), Key: c.String("scaler-key")})
	if err != nil {
		return s, UsageError("--scaler %v", err)
	}
	return s, nil
}
