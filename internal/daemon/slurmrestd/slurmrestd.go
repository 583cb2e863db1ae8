// Package slurmrestd is how daemons are told where slurmrestd is and whose tokens to bring. It stands apart from package daemon because its client costs
// those that ask slurmrestd nothing some 15 MB of memory.
package slurmrestd

import (
	"os"

	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/internal/slurmrest"
)

// Tokens chooses where slurmrestd tokens come from: the key file, if one is named, or $SLURM_JWT, or scontrol.
func Tokens(keyFile, user string) slurmrest.TokenSource {
	switch {
	case keyFile != "":
		return slurmrest.KeyFile{Path: keyFile, User: user}
	case os.Getenv("SLURM_JWT") != "":
		return slurmrest.Static(os.Getenv("SLURM_JWT"))
	default:
		return slurmrest.Scontrol{User: user}
	}
}

// ServerFlag says where slurmrestd is; the remark tells whether it must be said.
func ServerFlag(remark string) urfave.Flag {
	return &urfave.StringFlag{Name: "slurmrestd", EnvVars: []string{"SLURMTIDE_SLURMRESTD"}, Usage: "http://host:port, https://host:port or unix:///path " + remark}
}

// KeyFlag and UserFlag are what Tokens takes.
func KeyFlag() urfave.Flag {
	return &urfave.StringFlag{Name: "jwt-key", TakesFile: true, Usage: "jwt_hs256.key, to mint slurmrestd tokens with (default: $SLURM_JWT when set, or else from scontrol token)"}
}

// UserFlag is told who that may be.
func UserFlag(who string) urfave.Flag {
	return &urfave.StringFlag{Name: "jwt-user", Value: "slurm", Usage: "user the tokens are for: " + who}
}
