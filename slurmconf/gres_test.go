package slurmconf

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestGresGPUs(t *testing.T) {
	for gres, want := range map[string]int64{
		"": 0, "gpu": 1, "gpu:2": 2, "gpu:0": 0, "gpu:h100": 1, "gpu:h100:2": 2, "gpu:a100_1g.5gb:7": 7, "gpu:2080ti:4": 4,
		"gpu:2(S:0-1)": 2, "gpu:h100:2(S:0,1),gpu:a100:2(S:2,3)": 4, "shard:8": 0, "tmp:no_consume:4G": 0, "nic:1,gpu:1": 1, "gpumem:80G": 0,
	} {
		got, err := GresGPUs(gres)
		if assert.NoError(t, err, gres) {
			assert.Equal(t, want, got, gres)
		}
	}
	for _, gres := range []string{"gpu:", "gpu:-1", "gpu:h100:two", "gpu:h100:", "gpu:a:b:2", "gpu:1.5", "nic:1,gpu:x:y"} {
		_, err := GresGPUs(gres)
		assert.Error(t, err, gres)
	}
}

func FuzzGresGPUs(f *testing.F) {
	for _, s := range []string{"gpu:2", "gpu:h100:2(S:0,1),shard:8", "gpu:((", "gpu:)),gpu:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, gres string) {
		n, err := GresGPUs(gres)
		if err == nil && (n < 0 || n > int64(len(gres))*65535) {
			t.Errorf("GresGPUs(%q) = %d", gres, n)
		}
	})
}
