package slurmconf

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestGresGPUs(t *testing.T) {
	for gres, want := range map[string]int64{
		"": 0, "gpu": 1, "gpu:2": 2, "gpu:0": 0, "gpu:h100": 1, "gpu:h100:2": 2, "gpu:a100_1g.5gb:7": 7, "gpu:2080ti:4": 4,
		"gpu:2(S:0-1)": 2, "gpu:h100:2(S:0,1),gpu:a100:2(S:2,3)": 4, "shard:8": 0, "tmp:no_consume:4G": 0, "nic:1,gpu:1": 1, "gpumem:80G": 0,
		"gpu(S:0)": 1, "nic:x:y:z,gpu:1": 1,
	} {
		got, err := GresGPUs(gres)
		if assert.NoError(t, err, gres) {
			assert.Equal(t, want, got, gres)
		}
	}
	for _, gres := range []string{"gpu:", "gpu:-1", "gpu:h100:two", "gpu:h100:", "gpu:a:b:2", "gpu:1.5", "nic:1,gpu:x:y", "gpu:65536"} {
		_, err := GresGPUs(gres)
		assert.Error(t, err, gres)
	}
}

func TestParseGres(t *testing.T) {
	for text, want := range map[string][]Gres{
		"": nil, "(null)": nil, "N/A": nil,
		"gpu":                              {{"gpu", "", 1}},
		"gpu:h100:2(S:0,1),gpu:a100:1":     {{"gpu", "h100", 2}, {"gpu", "a100", 1}},
		"gpu:h100:1(IDX:0),nic:0":          {{"gpu", "h100", 1}, {"nic", "", 0}},
		"gpu:(null):1(IDX:0)":              {{"gpu", "", 1}},
		"gpu:(null):0(IDX:N/A),nic:2":      {{"gpu", "", 0}, {"nic", "", 2}},
		"shard:(null):4(4/16,0/16)":        {{"shard", "", 4}},
		"tmp:no_consume:4G":                {{"tmp", "", 4 << 30}},
		"bandwidth:lustre:no_consume:4k":   {{"bandwidth", "lustre", 4096}},
		"shard:h100:80(h100:0/40,h100:40)": {{"shard", "h100", 80}},
		"gpu:h100":                         {{"gpu", "h100", 1}},
	} {
		got, err := ParseGres(text)
		if assert.NoError(t, err, text) {
			assert.Equal(t, want, got, text)
		}
	}
	for _, text := range []string{":2", "gpu::2", "gpu:h100:two", "gpu:1G2", "gpu:99999999P", "a:b:c:2"} {
		list, err := ParseGres(text)
		require.ErrorContains(t, err, text)
		assert.Nil(t, list)
	}
	assert.Equal(t, "gpu:h100:2", Gres{"gpu", "h100", 2}.String())
	assert.Equal(t, "gpu:2", Gres{"gpu", "", 2}.String())
}

func TestParseTRESGres(t *testing.T) {
	for text, want := range map[string][]Gres{
		"": nil, "cpu=4": nil, "cpu:4,mem=3G,license/a:1,gres": nil,
		"gres/gpu:2":                   {{"gpu", "", 2}},
		"gres:gpu:h100:2":              {{"gpu", "h100", 2}},
		"gres/gpu":                     {{"gpu", "", 1}},
		"cpu=4,gres/gpu:h100=2,node=1": {{"gpu", "h100", 2}},
		"gres/gpu=3,gres/nic:1":        {{"gpu", "", 3}, {"nic", "", 1}},
		"gres/gpu:4096":                {{"gpu", "", 4096}},
	} {
		got, err := ParseTRESGres(text)
		if assert.NoError(t, err, text) {
			assert.Equal(t, want, got, text)
		}
	}
	for _, text := range []string{"gres/", "gres/gpu=x", "gres:gpu:h100:"} {
		_, err := ParseTRESGres(text)
		assert.ErrorContains(t, err, text)
	}
}

func FuzzGresGPUs(f *testing.F) {
	for _, s := range []string{"gpu:2", "gpu:h100:2(S:0,1),shard:8", "gpu:((", "gpu:)),gpu:1", "gres/gpu:h100=2,cpu=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, gres string) {
		n, err := GresGPUs(gres)
		if err == nil && (n < 0 || n > int64(len(gres))*65535) {
			t.Errorf("GresGPUs(%q) = %d", gres, n)
		}
		for _, parse := range []func(string) ([]Gres, error){ParseGres, ParseTRESGres} {
			list, err := parse(gres)
			if err != nil && list != nil {
				t.Errorf("%q: a list beside %v", gres, err)
			}
			for _, g := range list {
				if g.Name == "" || g.Count < 0 {
					t.Errorf("%q: %+v", gres, g)
				}
			}
		}
	})
}
