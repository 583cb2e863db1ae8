package page

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slurmtide/slurmtide/powersave"
	"github.com/slurmtide/slurmtide/powersave/history"
)

// mostHits bounds what a search finds.
const mostHits = 20

// Hit is something that there may be a story of.
type Hit struct {
	Kind string `json:"kind"` // job, node or nodeset
	Name string `json:"name"`
	Text string `json:"text"`
}

// nodeName is what a node, or a NodeSet, can be called: a host's name.
var nodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

// find says what may be meant: what is known of the present and of the newest past, and, for what is older, the very job, node or NodeSet that the words could name.
func find(words string, e powersave.Status, over []Boot) List[Hit] {
	words = strings.ToLower(strings.TrimSpace(words))
	for _, kind := range []string{"job ", "node ", "nodeset "} {
		words = strings.TrimSpace(strings.TrimPrefix(words, kind))
	}
	if words == "" {
		return listed[Hit](nil, mostHits)
	}
	var exact, some []Hit
	seen := map[[2]string]bool{}
	hit := func(kind, name, text string) {
		k := [2]string{kind, name}
		if seen[k] || !strings.Contains(strings.ToLower(name), words) {
			return
		}
		seen[k] = true
		if h := (Hit{kind, name, text}); strings.ToLower(name) == words {
			exact = append(exact, h)
		} else {
			some = append(some, h)
		}
	}
	jobs := func(ids []uint32, text string) {
		for _, id := range ids {
			hit("job", strconv.FormatUint(uint64(id), 10), text)
		}
	}
	for _, c := range e.NodeSets {
		hit("nodeset", c.Name, fmt.Sprintf("%d nodes, %d ready, %d booting", c.Nodes, c.Ready, c.Booting))
	}
	for _, b := range e.Boots {
		hit("node", b.Node, "boots: "+string(b.Phase))
		jobs(b.Jobs, "waits for nodes")
	}
	for _, b := range e.Offs {
		hit("node", b.Node, "goes: "+string(b.Phase))
	}
	for _, b := range over {
		hit("node", b.Node, string(b.Outcome)+" at "+b.ended.UTC().Format("15:04:05Z"))
		jobs(b.Jobs, "had nodes booted for it")
	}
	if id, err := strconv.ParseUint(words, 10, 32); err == nil && id > 0 {
		hit("job", strconv.FormatUint(id, 10), "ask Slurm and the history")
	}
	if nodeName.MatchString(words) {
		hit("node", words, "ask Slurm and the history")
	}
	return listed(slices.Concat(exact, some), mostHits)
}

// subject is what ?job=7, ?node=cpu-0 or ?nodeset=cpu asks about.
func subject(q url.Values) (s history.Subject, err error) {
	given := 0
	for _, key := range []string{"job", "node", "nodeset"} {
		value := q.Get(key)
		if value == "" {
			continue
		}
		given++
		switch id, numberErr := strconv.ParseUint(value, 10, 32); {
		case key == "job" && (numberErr != nil || id == 0):
			return s, fmt.Errorf("%q is not the number of a job", value)
		case key == "job":
			s.Job = uint32(id)
		case !nodeName.MatchString(value):
			return s, fmt.Errorf("%q is not the name of a %s", value, key)
		case key == "node":
			s.Node = value
		default:
			s.NodeSet = value
		}
	}
	if given != 1 {
		return s, errors.New("ask about one of job, node and nodeset")
	}
	return s, nil
}

// How much of a story is shown: the newest.
const (
	mostSteps = 200
	mostTold  = 50 // boots
	mostTried = 20
)

// Told is a story with an end.
type Told struct {
	history.Story
	Name      string  `json:"name"`
	Active    bool    `json:"active"` // something is under way: it is worth asking again
	StepsLeft int     `json:"stepsLeftOut,omitempty"`
	BootsLeft int     `json:"bootsLeftOut,omitempty"`
	Waterfall []Boot  `json:"waterfall"`
	Phases    []Phase `json:"phases"`
	Pending   bool    `json:"demand,omitempty"` // it is pending: what it counts for as demand the scaler knows
}

// tell makes the story of an answer.
func tell(a history.Answer) Told {
	t := Told{Story: history.Tell(a), Name: a.String(), Active: len(a.Boots) > 0, Pending: a.Job != 0 && a.Waits(), Waterfall: []Boot{}, Phases: phases}
	if over := len(t.Steps) - mostSteps; over > 0 {
		t.StepsLeft, t.Steps = over, t.Steps[over:]
	}
	t.Tried = t.Tried[:min(len(t.Tried), mostTried)]
	gates := openings(a.Entries)
	for _, b := range t.Boots {
		t.Waterfall = append(t.Waterfall, fromHistory(b, gates))
	}
	slices.Reverse(t.Waterfall) // the newest first, or for a job the slowest
	if a.Job != 0 {
		slices.SortStableFunc(t.Waterfall, func(a, b Boot) int { return cmp.Compare(b.took(), a.took()) })
	}
	if over := len(t.Waterfall) - mostTold; over > 0 {
		t.BootsLeft, t.Waterfall = over, t.Waterfall[:mostTold]
	}
	t.Boots = nil // the waterfall is what is shown of them
	return t
}
