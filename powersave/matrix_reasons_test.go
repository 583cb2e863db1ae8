package powersave_test

import (
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slurmtide/slurmtide/powersave"
)

// ourCombination is a combination for nodes that bear a reason of some kinds, and are drained, or are not.
type ourCombination struct {
	*combination
	kinds   []string // patterns
	drained string   // yes, no, or empty: either
}

// TestMatrixReasons lets a new engine see every base state with every other word, drained and not, with a reason of each kind that the bridge
// itself writes on nodes, and compares what it asks for with what it does about the situation that matrix.md says this counts as. Further reasons
// of a kind it sees with the base states alone.
func TestMatrixReasons(t *testing.T) {
	situations, rows := readMatrix(t)
	var combinations []*ourCombination
	for cells := range matrixCells(t, "Combinations with reasons of ours") {
		require.Len(t, cells, 6)
		combinations = append(combinations, &ourCombination{readCombination(t, situations, cells[2:]), strings.Split(cells[0], "; "), cells[1]})
	}
	bases, all := stateWords(t)
	words := map[string][]powersave.NodeState{}
	for cells := range matrixCells(t, "Reasons of ours") {
		require.Len(t, cells, 2)
		kind, reason := cells[0], cells[1]
		require.True(t, strings.HasPrefix(reason, powersave.ReasonPrefix), reason)
		if _, seen := words[kind]; !seen {
			words[kind] = all
		} else {
			words[kind] = nil
		}
		for _, b := range bases {
			for _, x := range append([]powersave.NodeState{b}, words[kind]...) {
				for _, drain := range []powersave.NodeState{0, powersave.NodeDrain} {
					s := situation{known: true, set: true, state: b | x | drain | powersave.NodeCloud, reason: reason}
					i := slices.IndexFunc(combinations, func(c *ourCombination) bool { return c.fits(kind, s.state) })
					if !assert.GreaterOrEqual(t, i, 0, "no row for %s: %s", s.state, reason) {
						continue
					}
					combinations[i].used, s.name = true, combinations[i].as
					for _, pod := range matrixPods {
						w := newMatrixWorld(t, s, pod)
						w.run(2 * time.Minute)
						assert.Equal(t, find(rows, s, pod).want, w.did(), "%s (%s) counts as %q, with pod %q", s.state, reason, s.name, pod)
					}
				}
			}
		}
	}
	for _, c := range combinations {
		assert.True(t, c.used, "no state needs the row for %v, drained %q, %s with %s", c.kinds, c.drained, c.shows, c.and)
	}
}

func (c *ourCombination) fits(kind string, s powersave.NodeState) bool {
	return slices.ContainsFunc(c.kinds, func(pattern string) bool {
		ok, err := path.Match(pattern, kind)
		return err == nil && ok
	}) && (c.drained == "" || (c.drained == "yes") == s.Any(powersave.NodeDrain)) && c.combination.fits(s)
}
