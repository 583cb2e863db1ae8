package watch

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNextIDs(t *testing.T) {
	ids := func(from, to uint32) (ids []uint32) {
		for id := from; id <= to; id++ {
			ids = append(ids, id)
		}
		return ids
	}
	for name, tc := range map[string]struct {
		before nextIDs
		fresh  []uint32
		want   nextIDs
	}{
		"nothing":                           {nil, nil, nil},
		"the first read":                    {nil, []uint32{7, 5, 900000}, nextIDs{900000}},
		"the first, in a federation":        {nil, []uint32{1<<26 + 5, 1<<26 + 9, 2<<26 + 3}, nextIDs{1<<26 + 9, 2<<26 + 3}},
		"in turn":                           {nextIDs{10}, ids(11, 600), nextIDs{600}},
		"some have gone":                    {nextIDs{10}, []uint32{700}, nextIDs{700}},
		"many have gone":                    {nextIDs{10}, []uint32{5000}, nextIDs{10, 5000}},
		"one is queued once more":           {nextIDs{5000}, []uint32{70, 5001}, nextIDs{5001, 70}},
		"many are":                          {nextIDs{90000}, []uint32{10, 3000, 6000, 9000, 12000}, nextIDs{90000, 10, 3000, 6000}},
		"begun again":                       {nextIDs{5000}, ids(1, 30), nextIDs{5000, 30}},
		"and gone on":                       {nextIDs{5000, 30}, ids(31, 40), nextIDs{40, 5000}},
		"begun again, others once more":     {nextIDs{90000, 60000}, append(ids(1, 30), 4000), nextIDs{90000, 30, 4000, 60000}},
		"another cluster's":                 {nextIDs{1<<26 + 5}, []uint32{2<<26 + 3, 1<<26 + 6}, nextIDs{1<<26 + 6, 2<<26 + 3}},
		"two places have become one":        {nextIDs{40, 30}, ids(41, 44), nextIDs{44, 30}},
		"the highest number there is":       {nextIDs{^uint32(0) - 3}, []uint32{^uint32(0)}, nextIDs{^uint32(0)}},
		"a run that reaches over its place": {nextIDs{100}, []uint32{50, 101}, nextIDs{101}},
	} {
		t.Run(name, func(t *testing.T) {
			n := slices.Clone(tc.before)
			n.all(tc.fresh)
			assert.Equal(t, tc.want, n)
		})
	}
	none := func(uint32) bool { return false }
	t.Run("those taken are passed over", func(t *testing.T) {
		asked := nextIDs{10}.ask(func(id uint32) bool { return id < 1000 })
		assert.Equal(t, [][]uint32{ids(1000, 999+window)}, asked)
	})
	t.Run("none is asked for twice", func(t *testing.T) {
		asked := nextIDs{10, 30}.ask(none)
		assert.Equal(t, [][]uint32{ids(11, 10+window), ids(11+window, 10+2*window)}, asked)
	})
	t.Run("no more numbers", func(t *testing.T) {
		assert.Equal(t, [][]uint32{{^uint32(0)}}, nextIDs{^uint32(0) - 1}.ask(none))
	})
	t.Run("where some are found others will be", func(t *testing.T) {
		n := nextIDs{1000, 10}
		more := n.seen(n.ask(none), map[uint32]string{12: "", 11: "", 3: ""})
		assert.False(t, more)
		assert.Equal(t, nextIDs{12, 1000}, n)
		more = n.seen(n.ask(none), map[uint32]string{12 + window: ""})
		assert.True(t, more)
		assert.Equal(t, nextIDs{12 + window, 1000}, n)
	})
}
