package history

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// mostBoots are shown, mostSteps likewise: what people read.
const (
	mostBoots = 20
	mostSteps = 200
)

func (s Subject) String() string {
	switch {
	case s.Job != 0:
		return fmt.Sprintf("job %d", s.Job)
	case s.NodeSet != "":
		return "NodeSet " + s.NodeSet
	}
	return "node " + s.Node
}

// WriteText tells the story to people.
func (s Story) WriteText(to io.Writer) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n", s.Subject)
	for _, line := range s.Now {
		fmt.Fprintf(&out, "  %s\n", line)
	}
	s.writeSteps(&out)
	s.writeBoots(&out)
	list := func(head string, lines ...string) {
		for i, line := range lines {
			if i == 0 {
				fmt.Fprintf(&out, "\n%-11s %s\n", head, line)
			} else {
				fmt.Fprintf(&out, "%-11s %s\n", "", line)
			}
		}
	}
	some := func(text string) []string {
		if text == "" {
			return nil
		}
		return []string{text}
	}
	list("Why:", some(s.Why)...)
	list("Tried:", s.Tried...)
	list("Next:", s.Next...)
	list("What to do:", some(s.Do)...)
	list("Note:", s.Notes...)
	_, err := io.WriteString(to, out.String())
	return err
}

const clock = "2006-01-02 15:04:05.000"

func (s Story) writeSteps(out *strings.Builder) {
	steps := s.Steps
	if len(steps) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%-23s  %10s  WHAT\n", "TIME (UTC)", "AFTER")
	if over := len(steps) - mostSteps; over > 0 {
		fmt.Fprintf(out, "%-23s  %10s  %d earlier steps; -o json has them\n", "…", "", over)
		steps = steps[over:]
	}
	for i, step := range steps {
		after := ""
		if i > 0 {
			after = "+" + seconds(step.After)
		}
		fmt.Fprintf(out, "%-23s  %10s  %s", step.Time.UTC().Format(clock), after, step.Text)
		if !step.Last.IsZero() {
			fmt.Fprintf(out, " (the last %s later)", seconds(step.Last.Sub(step.Time).Seconds()))
		}
		fmt.Fprintln(out)
	}
}

// seconds are short: hundredths where they matter.
func seconds(s float64) string {
	switch {
	case s < 100:
		return fmt.Sprintf("%.2f s", s)
	case s < 6000:
		return fmt.Sprintf("%.0f s", s)
	}
	return time.Duration(s * float64(time.Second)).Round(time.Minute).String()
}

// writeBoots shows how long each phase took, of the newest boots for a node or NodeSet, of the slowest of a job.
func (s Story) writeBoots(out *strings.Builder) {
	boots := slices.Clone(s.Boots)
	if len(boots) == 0 {
		return
	}
	head := "Boots"
	if over := len(boots) - mostBoots; over > 0 {
		head = fmt.Sprintf("The newest %d of %d boots", mostBoots, len(boots))
		if s.Job != 0 {
			head = fmt.Sprintf("The slowest %d of %d boots", mostBoots, len(boots))
			slices.SortStableFunc(boots, func(a, b *Boot) int { return cmp.Compare(s.took(a), s.took(b)) })
		}
		boots = boots[over:]
	}
	since, column := "the request", "REQUESTED"
	if !slices.ContainsFunc(boots, func(b *Boot) bool { return !b.Dynamic }) { // nobody has requested them
		since, column = "it was to be there", "WANTED"
	}
	fmt.Fprintf(out, "\n%s, time since %s:\n", head, since)
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\t"+column+"\tCREATED\tSCHEDULED\tSTARTED\tREGISTERED\tHOST\tOFFERING\tPODS\tOUTCOME")
	for _, b := range boots {
		began := b.Began()
		since := func(t time.Time) string {
			if t.IsZero() {
				return "-"
			}
			return seconds(max(0, t.Sub(began).Seconds()))
		}
		outcome := string(b.Outcome)
		if b.Class != "" {
			outcome += ": " + b.Class
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", b.Node, began.UTC().Format("15:04:05"), since(b.Created), since(b.Scheduled),
			since(b.Started), since(b.Registered), cmp.Or(b.Host, "-"), cmp.Or(b.Offering, "-"), b.Pods, outcome)
	}
	w.Flush()
}

// took is how long the boot took, or has taken.
func (s Story) took(b *Boot) time.Duration {
	for _, t := range []time.Time{b.Registered, b.Ended} {
		if !t.IsZero() {
			return t.Sub(b.Began())
		}
	}
	return s.Time.Sub(b.Began())
}
