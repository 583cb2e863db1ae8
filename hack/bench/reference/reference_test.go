// Package reference has work that never changes: what the machine does of it in the same run is the measure of the other Go benchmarks.
package reference

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

// BenchmarkReference fills maps, sorts names, writes and reads JSON, and hashes: about what the engine and the demand model are made of.
func BenchmarkReference(b *testing.B) {
	type node struct {
		Name  string
		CPUs  int
		Flags []string
	}
	const nodes = 20_000
	var sum byte
	for b.Loop() {
		byName := map[string]*node{}
		for i := range nodes {
			n := &node{Name: fmt.Sprintf("node-%d", i*7919%nodes), CPUs: i % 64, Flags: []string{"CLOUD", "POWERED_DOWN"}}
			byName[n.Name] = n
		}
		names := make([]string, 0, len(byName))
		for name := range byName {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			text, err := json.Marshal(byName[name])
			if err != nil {
				b.Fatal(err)
			}
			var back node
			if err := json.Unmarshal(text, &back); err != nil {
				b.Fatal(err)
			}
			hash := sha256.Sum256(text)
			sum += hash[0] + byte(back.CPUs)
		}
	}
	b.ReportMetric(float64(sum), "sum")
}
