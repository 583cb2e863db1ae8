package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExplainJob(t *testing.T) {
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String()
		if r.URL.Path == "/explain/job/8" {
			http.Error(w, "Slurm lists no job 8 that waits or runs", http.StatusNotFound)
			return
		}
		if r.URL.Query().Get("output") == "json" && r.URL.Path == "/explain/job/7" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte("[{\"cluster\":\"tide\",\"job\":7,\"text\":\"it counts\"}]\n"))
			return
		}
		_, _ = w.Write([]byte("job 7 counts: 2 nodes are to be powered up for it\n"))
	}))
	defer server.Close()
	var said strings.Builder
	require.NoError(t, explainJob(t.Context(), server.URL+"/", "", "text", 7, &said))
	assert.Equal(t, "job 7 counts: 2 nodes are to be powered up for it\n", said.String())
	assert.Equal(t, "/explain/job/7", asked)
	require.NoError(t, explainJob(t.Context(), server.URL, "a b", "text", 7, &said))
	assert.Equal(t, "/explain/job/7?cluster=a+b", asked)
	require.EqualError(t, explainJob(t.Context(), server.URL, "", "text", 8, &said), "Slurm lists no job 8 that waits or runs")

	said.Reset()
	require.NoError(t, explainJob(t.Context(), server.URL, "", "json", 7, &said))
	assert.JSONEq(t, `[{"cluster":"tide","job":7,"text":"it counts"}]`, said.String())
	said.Reset()
	require.NoError(t, explainJob(t.Context(), server.URL, "", "yaml", 7, &said))
	assert.Equal(t, "- cluster: tide\n  job: 7\n  text: it counts\n", said.String())
	require.ErrorContains(t, explainJob(t.Context(), server.URL, "", "yaml", 9, &said), "it is of an older version")
}
