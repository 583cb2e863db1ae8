package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/scaler/ask"
)

// Escapes of a terminal.
const (
	bold  = "\x1b[1m"
	red   = "\x1b[31m"
	plain = "\x1b[0m"
)

// rateOver is the time over which boots and power-downs are counted.
const rateOver = time.Minute

// frame is one picture of the bridge: at most height lines of at most width characters; 0: no limit.
type frame struct {
	width, height int
	colours       bool
	lines         []string
}

func (f *frame) say(format string, args ...any) {
	line := []rune(fmt.Sprintf(format, args...))
	if f.width > 0 && len(line) > f.width {
		line = append(line[:f.width-1], '…')
	}
	f.lines = append(f.lines, string(line))
}

// paint gives the last line a colour, where there are any.
func (f *frame) paint(colour string) {
	if f.colours {
		last := &f.lines[len(f.lines)-1]
		*last = colour + *last + plain
	}
}

// table says rows in columns, as many as fit when rest lines are left for what follows, and how many are left out. The first row is the head;
// alone it is not worth a line.
func (f *frame) table(rows [][]string, rest int) {
	if len(rows) < 2 {
		return
	}
	left := 0
	if room := f.height - len(f.lines) - rest - 2; f.height > 0 && len(rows) > max(room, 2) {
		room = max(room, 2)
		left = len(rows) - room
		rows = rows[:room]
	}
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	w.Flush()
	f.say("")
	for i, line := range strings.Split(strings.TrimRight(out.String(), "\n"), "\n") {
		f.say("%s", strings.TrimRight(line, " "))
		if i == 0 {
			f.paint(bold)
		}
	}
	if left > 0 {
		f.say("… and %d more", left)
	}
}

// draw makes the picture. problem is why the bridge does not answer any more: then st is old.
func (f *frame) draw(seen sight, problem string) []string {
	st, e := seen.Status, seen.Engine
	f.say("slurmtide top  %s  bridge %s, %s", e.Time.UTC().Format("15:04:05Z"), cmp.Or(st.Version, "-"), st.Lease.Text())
	f.paint(bold)
	for _, trouble := range []struct{ head, text string }{{"THE BRIDGE DOES NOT ANSWER: ", problem}, {"SLURM CANNOT BE READ: ", e.SlurmError}, {"KUBERNETES CANNOT BE READ: ", st.KubernetesError}, {"THE SCALER HAS NO FIGURES: ", seen.demandError}} {
		if trouble.text != "" {
			f.say("%s%s", trouble.head, trouble.text)
			f.paint(red)
		}
	}
	f.say("%d requests wait, %d start gates, %d pods", st.Spool.Depth, e.Gates, e.Pods)
	f.say("%s", rates(e))
	if d := seen.demand; d != nil {
		f.say("%s", queue(*d))
	}
	jobs, boots := topJobs(e), topBoots(e)
	f.table(topSets(e, seen.demand), 6)
	f.table(jobs, min(len(boots), 8)+2)
	f.table(boots, 0)
	return f.lines
}

// rates counts what ended within the last minute.
func rates(e powersave.Status) string {
	var took []time.Duration
	for _, b := range e.History {
		if r := b.Times.Registered; e.Time.Sub(r) < rateOver {
			took = append(took, r.Sub(b.Times.Requested))
		}
	}
	offs := 0
	for _, o := range e.FinishedOffs {
		if e.Time.Sub(o.Times.Finished) < rateOver {
			offs++
		}
	}
	text := fmt.Sprintf("in the last minute: %d nodes registered", len(took))
	if len(took) > 0 {
		slices.Sort(took)
		text += fmt.Sprintf(" (median %.1f s, slowest %.1f s)", took[len(took)/2].Seconds(), took[len(took)-1].Seconds())
	}
	return text + fmt.Sprintf(", %d powered down", offs)
}

// queue says how many pending jobs there are, by why they count or do not.
func queue(d ask.Demand) string {
	says := make([]string, len(d.Pending))
	for i, p := range d.Pending {
		says[i] = fmt.Sprintf("%d %s", p.Jobs, p.Says)
	}
	return "pending jobs: " + cmp.Or(strings.Join(says, ", "), "none")
}

// topSets are the NodeSets. NEEDED is how many nodes are in use or would be by pending jobs, and how many of them are to be powered up.
func topSets(e powersave.Status, demand *ask.Demand) [][]string {
	needed := map[string]string{}
	if demand != nil {
		for _, s := range demand.NodeSets {
			needed[s.Name] = fmt.Sprint(s.Needed)
			if s.PowerUp > 0 {
				needed[s.Name] += fmt.Sprintf(" (+%d)", s.PowerUp)
			}
		}
	}
	rows := [][]string{{"NODESET", "NODES", "UP", "", "BOOTING", "READY", "FAILED", "NEEDED", "FLOOR", "AHEAD", "NOT TRIED"}}
	for _, c := range e.NodeSets {
		floor, ahead := "-", "-"
		if f := c.Floor; f != nil {
			floor, ahead = fmt.Sprintf("%d/%d", f.Held, f.Wanted), fmt.Sprint(f.Ahead)
		}
		var closed []string
		for _, b := range c.Breakers {
			if b.State != powersave.BreakerClosed {
				until := "until its spec changes"
				if !b.Until.IsZero() {
					until = b.Until.UTC().Format("15:04:05Z")
				}
				closed = append(closed, strings.TrimSpace(fmt.Sprintf("%s %s %s", b.Key.Offering, b.Class, until)))
			}
		}
		rows = append(rows, []string{
			c.Name, fmt.Sprint(c.Nodes), fmt.Sprint(c.PoweredUp), bar(c.PoweredUp, c.Nodes, 10), fmt.Sprint(c.Booting), fmt.Sprint(c.Ready), fmt.Sprint(c.Failed),
			cmp.Or(needed[c.Name], "-"), floor, ahead, cmp.Or(strings.Join(closed, ", "), c.Problem, "-"),
		})
	}
	return rows
}

// topJobs are the jobs whose nodes boot, those that wait longest first.
func topJobs(e powersave.Status) [][]string {
	rows := [][]string{{"JOB", "WAITS FOR NODES", "THE LAST IS", "WAITED"}}
	for _, j := range e.Waiting() {
		rows = append(rows, []string{fmt.Sprint(j.Job), fmt.Sprint(j.Boots), string(j.Last), waited(e, j.Since)})
	}
	return rows
}

// topBoots are boots and power-downs in flight, those that take longest first.
func topBoots(e powersave.Status) [][]string {
	type row struct {
		powersave.Boot
		off bool
	}
	var all []row
	for _, b := range e.Boots {
		all = append(all, row{b, false})
	}
	for _, b := range e.Offs {
		all = append(all, row{b, true})
	}
	slices.SortStableFunc(all, func(a, b row) int { return a.Boot.Began().Compare(b.Began()) })
	rows := [][]string{{"NODE", "", "PHASE", "SINCE", "JOBS", "HOST", "PROBLEM"}}
	for _, b := range all {
		progress, jobs := bar(slices.Index(powersave.BootPhases, b.Phase), len(powersave.BootPhases), len(powersave.BootPhases)), strings.Trim(strings.ReplaceAll(fmt.Sprint(b.Jobs), " ", ","), "[]")
		if b.off {
			progress = "down"
		}
		rows = append(rows, []string{b.Node, progress, string(b.Phase), waited(e, b.Began()), cmp.Or(jobs, "-"), cmp.Or(b.Host, "-"), cmp.Or(b.Problem, "-")})
	}
	return rows
}

func waited(e powersave.Status, since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%.1f s", max(0, e.Time.Sub(since).Seconds()))
}

// bar shows n of all in so many characters; what is there at all shows.
func bar(n, all, width int) string {
	filled := 0
	if all > 0 {
		filled = min((max(n, 0)*width+all-1)/all, width)
	}
	return "[" + strings.Repeat("=", filled) + strings.Repeat(".", width-filled) + "]"
}
