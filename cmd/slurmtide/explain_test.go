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
		_, _ = w.Write([]byte("job 7 counts: 2 nodes are to be powered up for it\n"))
	}))
	defer server.Close()
	var said strings.Builder
	require.NoError(t, explainJob(t.Context(), server.URL+"/", "", 7, &said))
	assert.Equal(t, "job 7 counts: 2 nodes are to be powered up for it\n", said.String())
	assert.Equal(t, "/explain/job/7", asked)
	require.NoError(t, explainJob(t.Context(), server.URL, "a b", 7, &said))
	assert.Equal(t, "/explain/job/7?cluster=a+b", asked)
	require.EqualError(t, explainJob(t.Context(), server.URL, "", 8, &said), "Slurm lists no job 8 that waits or runs")
}
