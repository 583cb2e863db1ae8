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
	"github.com/slurmtide/slurmtide/scaler/ask"
)

func topCommand() *urfave.Command {
	return &urfave.Command{
		Name:  "top",
		Usage: "watch NodeSets, jobs that wait for nodes, and boots with their phases, live",
		Description: "Asks the bridge over the socket in its spool directory; run it where the bridge runs, as the same user or root. Ctrl-C ends it.\n" +
			"What the queue asks for comes from the scaler, where it serves its metrics.\n" +
			"Where there is no terminal it prints one picture, as with --once. NO_COLOR turns colours off.\n\n" +
			"Exit status: 0 it was ended, or the picture is printed; 1 the bridge does not answer; 2 wrong usage.",
		Flags: append([]urfave.Flag{
			cli.SpoolFlag(),
			&urfave.BoolFlag{Name: "once", Usage: "print one picture, whole and without colours"},
			&urfave.DurationFlag{Name: "every", Value: time.Second, Usage: "how often it is painted"},
			&urfave.DurationFlag{Name: "timeout", Value: 5 * time.Second, Usage: "how long to wait for the bridge, and for the scaler"},
		}, scalerFlags("the only one")...),
		Action: func(c *urfave.Context) error {
			if err := cli.NoArguments(c, ""); err != nil {
				return err
			}
			if c.Duration("timeout") <= 0 || c.Duration("every") <= 0 {
				return cli.UsageError("--timeout and --every are times to wait, such as 1s")
			}
			scaler, err := cli.Scaler(c)
			if err != nil {
				return err
			}
			t := top{
				demand: func(ctx context.Context) (ask.Demand, error) { return scaler.Demand(ctx, c.String("cluster")) }, insist: c.IsSet("scaler"), dir: c.String("spool"), timeout: c.Duration("timeout"), every: c.Duration("every"), w: c.App.Writer,
			}
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
	demand         func(context.Context) (ask.Demand, error)
	insist         bool // somebody has named the scaler: that it does not answer is worth a line
	timeout, every time.Duration
	w              io.Writer
	size           func() (width, height int) // nil: no terminal, one picture
	colours        bool
}

// unasked is how long one picture waits for a scaler that nobody has named.
const unasked = time.Second

// Escapes with which the terminal is as before when top ends.
const (
	enter = "\x1b[?1049h\x1b[?25l"
	leave = "\x1b[?25h\x1b[?1049l"
)

func (t top) run(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	demands := make(chan demanded)
	go t.askScaler(ctx, demands)
	seen, err := t.ask(ctx)
	if err != nil {
		return urfave.Exit(err.Error(), exitNoBridge)
	}
	if t.size == nil {
		var enough <-chan time.Time
		if !t.insist {
			enough = time.After(unasked)
		}
		select {
		case seen.demanded = <-demands:
		case <-enough:
		case <-ctx.Done():
		}
		_, err := fmt.Fprintln(t.w, strings.Join((&frame{}).draw(seen, ""), "\n"))
		return err
	}
	if _, err := io.WriteString(t.w, enter); err != nil {
		return err
	}
	defer func() { _, _ = io.WriteString(t.w, leave) }()
	every := time.NewTicker(t.every)
	defer every.Stop()
	for problem, news := "", true; ; {
		if news {
			if err := t.paint(seen, problem); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case said := <-demands:
			news, seen.demanded = said != seen.demanded, said
			continue
		case <-every.C:
			news = true
		}
		switch next, err := t.ask(ctx); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			problem = err.Error()
		default:
			seen.Status, problem = next.Status, ""
		}
	}
}

// paint writes over what is there, in one piece, or the terminal flickers.
func (t top) paint(seen sight, problem string) error {
	width, height := t.size()
	lines := (&frame{width: width, height: height, colours: t.colours}).draw(seen, problem)
	lines = lines[:min(len(lines), height)]
	_, err := io.WriteString(t.w, "\x1b[H"+strings.Join(lines, "\x1b[K\r\n")+"\x1b[K\x1b[J")
	return err
}

// sight is what one look shows.
type sight struct {
	bridge.Status
	demanded
}

// demanded is what the scaler has said.
type demanded struct {
	demand      *ask.Demand // nil: nobody has told
	demandError string
}

// ask asks the bridge.
func (t top) ask(ctx context.Context) (seen sight, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	raw, err := spool.AskStatus(ctx, t.dir)
	if err != nil {
		return seen, fmt.Errorf("%s", noBridge(t.dir, t.timeout, err))
	}
	if err := json.Unmarshal(raw, &seen.Status); err != nil {
		return seen, fmt.Errorf("reading the bridge's answer (is it of another version?): %w", err)
	}
	return seen, nil
}

// askScaler asks the scaler as often as is painted, until ctx is done. It is beside the bridge: without the scaler, or while that thinks, the rest is shown.
func (t top) askScaler(ctx context.Context, to chan<- demanded) {
	every := time.NewTicker(t.every)
	defer every.Stop()
	for {
		asked, cancel := context.WithTimeout(ctx, t.timeout)
		var said demanded
		switch d, err := t.demand(asked); {
		case err == nil:
			said.demand = &d
		case t.insist:
			said.demandError = err.Error()
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case to <- said:
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}
