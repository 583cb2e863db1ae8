package cli

import (
	"flag"
	"os"

	urfave "github.com/urfave/cli/v2"

	"github.com/slurmtide/slurmtide/powersave/spool"
)

// SpoolFlag is --spool. Its default is what slurmtide.conf says, so that people need not
// repeat it.
func SpoolFlag() urfave.Flag {
	return spoolFlag{&urfave.StringFlag{Name: "spool", TakesFile: true, Usage: "spool directory shared with the programs that slurm.conf names"}}
}

type spoolFlag struct{ *urfave.StringFlag }

// Apply is called for the flags of the command that runs: the others need not read slurmtide.conf.
func (f spoolFlag) Apply(set *flag.FlagSet) error {
	settings, _ := spool.LoadSettings(os.Getenv)
	f.Value = settings.Spool
	return f.StringFlag.Apply(set)
}
