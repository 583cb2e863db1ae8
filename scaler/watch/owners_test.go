package watch

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/slurmtide/slurmtide/scaler"
)

func TestOwn(t *testing.T) {
	small, large := &scaler.Shape{CPUs: 4}, &scaler.Shape{CPUs: 8, Gres: "gpu:2"}
	set := func(name string, shape *scaler.Shape, partitions ...string) scaler.NodeSet {
		return scaler.NodeSet{Name: name, Partitions: partitions, Shape: shape}
	}
	extras := []scaler.NodeSet{
		set("a", small, "p"), set("b", large, "p", "q"),
		set("f", &scaler.Shape{CPUs: 4}, "features"), set("g", &scaler.Shape{CPUs: 4, Features: []string{"ib"}}, "features"), set("h", &scaler.Shape{CPUs: 4, Features: []string{"avx"}}, "features"),
		set("s", &scaler.Shape{CPUs: 8, Gres: "gpu:a100:2"}, "cards"), set("t", &scaler.Shape{CPUs: 8, Gres: "gpu:h100:2,shard:8"}, "cards"),
	}
	node := func(partition string, shape *scaler.Shape) scaler.Node {
		return scaler.Node{Name: "x", Partitions: []string{partition}, Shape: shape}
	}
	for name, tc := range map[string]struct {
		node scaler.Node
		want string
	}{
		"of Kubernetes":             {scaler.Node{Name: "ours", Partitions: []string{"p"}, Shape: small}, "cpu"},
		"by shape":                  {node("p", &scaler.Shape{CPUs: 8, Memory: 7, Gres: "gpu:h100:2(S:0)"}), "b"},
		"the first shape":           {node("p", small), "a"},
		"neither shape":             {node("p", &scaler.Shape{CPUs: 5}), ""},
		"other GPUs":                {node("p", &scaler.Shape{CPUs: 8, Gres: "gpu:4"}), ""},
		"the only one in partition": {node("q", &scaler.Shape{CPUs: 5}), "b"},
		"another partition":         {node("r", small), ""},
		"no features":               {node("features", &scaler.Shape{CPUs: 4}), "f"},
		"a feature of one":          {node("features", &scaler.Shape{CPUs: 4, Features: []string{"ib", "ssd"}}), "g"},
		"a feature of none":         {node("features", &scaler.Shape{CPUs: 4, Features: []string{"ssd"}}), "f"},
		"GPUs of the first type":    {node("cards", &scaler.Shape{CPUs: 8, Gres: "gpu:a100:2(S:0-1)"}), "s"},
		"GPUs of the second type":   {node("cards", &scaler.Shape{CPUs: 8, Gres: "gpu:h100:2(S:0-1)"}), "t"},
		"GPUs of a third type":      {node("cards", &scaler.Shape{CPUs: 8, Gres: "gpu:b200:2(S:0-1)"}), ""},
		"GPUs of no type":           {node("cards", &scaler.Shape{CPUs: 8, Gres: "gpu:2"}), "s"},
	} {
		t.Run(name, func(t *testing.T) {
			owner := func(n string) string { return map[string]string{"ours": "cpu"}[n] }
			assert.Equal(t, tc.want, own([]scaler.Node{tc.node}, owner, extras)[0].NodeSet)
		})
	}
}
