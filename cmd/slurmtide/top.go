package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	urfave "github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/slurmtide/slurmtide/internal/cli"
	"github.com/slurmtide/slurmtide/powersave/bridge"
	"github.com/slurmtide/slurmtide/powersave/spool"
)

func topCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "top",
		Usage: "watch NodeSets, jobs that wait for nodes, and boots with their phases, live",
		Description: "Asks the bridge over the socket in its spool directory; run it where the bridge runs, as the same user or root. Ctrl-C ends it.\n" +
			"Where there is no terminal it prints one picture, as with --once. NO_COLOR turns colours off.\n\n" +
			"Exit status: 0 it was ended, or the picture is printed; 1 the bridge does not answer; 2 wrong usage.",
		Flags: []urfave.Flag{
			cli.SpoolFlag(),
			&urfave.BoolFlag{Name: "once", Usage: "print one picture, whole and without colours"},
			&urfave.DurationFlag{Name: "every", Value: time.Second, Usage: "how often it is painted"},
			&urfave.DurationFlag{Name: "timeout", Value: 5 * time.Second, Usage: "how long to wait for the bridge"},
		},
		Action: func(c *urfave.Context) error {
			if err := cli.NoArguments(c, ""); err != nil {
				return err
			}
			if c.Duration("timeout") <= 0 || c.Duration("every") <= 0 {
				return cli.UsageError("--timeout and --every are times to wait, such as 1s")
			}
			t := top{dir: c.String("spool"), timeout: c.Duration("timeout"), every: c.Duration("every"), w: c.App.Writer}
			if f, isFile := c.App.Writer.(*os.File); isFile && !c.Bool("once") && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
				t.size = func() (width, height int) {
					if width, height, err := term.GetSize(int(f.Fd())); err == nil && width > 0 && height > 0 {
						return width, height
					}
					return 80, 24
				}
				t.colours = os.Getenv("NO_COLOR") == ""
			}
			ctx, stop := signal.NotifyContext(c.Context, os.Interrupt, syscall.SIGTERM)
			defer stop()
			return t.run(ctx)
		},
	}
}

// top paints what the bridge says of itself.
type top struct {
	dir            string
	timeout, every time.Duration
	w              io.Writer
	size           func() (width, height int) // nil: no terminal, one picture
	colours        bool
}

// Escapes with which the terminal is as before when top ends.
const (
	enter = "\x1b[?1049h\x1b[?25l"
	leave = "\x1b[?25h\x1b[?1049l"
)

func (t top) run(ctx context.Context) error {
	st, err := t.ask(ctx)
	if err != nil {
		return urfave.Exit(err.Error(), exitNoBridge)
	}
	if t.size == nil {
		_, err := fmt.Fprintln(t.w, strings.Join((&frame{}).draw(st, ""), "\n"))
		return err
	}
	if _, err := io.WriteString(t.w, enter); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(t.w, leave) }()
	every := time.NewTicker(t.every)
	defer every.Stop()
	for problem := ""; ; {
		if err := t.paint(st, problem); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		switch next, err := t.ask(ctx); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			problem = err.Error()
		default:
			st, problem = next, ""
		}
	}
}

// paint writes over what is there, in one piece, or the terminal flickers.
func (t top) paint(st bridge.Status, problem string) error {
	width, height := t.size()
	lines := (&frame{width: width, height: height, colours: t.colours}).draw(st, problem)
	lines = lines[:min(len(lines), height)]
	_, err := io.WriteString(t.w, "\x1b[H"+strings.Join(lines, "\x1b[K\r\n")+"\x1b[K\x1b[J")
	return err
}

func (t top) ask(ctx context.Context) (st bridge.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	raw, err := spool.AskStatus(ctx, t.dir)
	if err != nil {
		return st, fmt.Errorf("%s", noBridge(t.dir, t.timeout, err))
	}
	if err := json.Unmarshal(raw, &st); err != nil {
		return st, fmt.Errorf("reading the bridge's answer (is it of another version?): %w", err)
	}
	return st, nil
}
