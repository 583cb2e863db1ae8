package ask

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAt(t *testing.T) {
	for _, wrong := range []string{"", "localhost:9443", "http://", "ftp://a", "/demand", ":"} {
		_, err := At(wrong)
		assert.ErrorContains(t, err, "expected a URL such as http://localhost:9443", wrong)
	}
}

func TestAskingInVain(t *testing.T) {
	says := map[string]string{"/html/demand": "<html>", "/long/demand": `{"cluster":"` + strings.Repeat("a", mostSaid) + `"}`}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, ok := says[r.URL.Path]; ok {
			_, _ = w.Write([]byte(text))
			return
		}
		http.NotFound(w, r)
	}))
	for path, want := range map[string]string{"/html": "is it of another version?", "/long": "is it of another version?", "/old": "404 page not found"} {
		s, err := At(server.URL + path)
		require.NoError(t, err)
		_, err = s.Demand(t.Context(), "")
		require.ErrorContains(t, err, want, path)
	}
	s, err := At(server.URL)
	require.NoError(t, err)
	server.Close()
	_, err = s.Demand(t.Context(), "")
	assert.ErrorContains(t, err, "is it running there? --scaler says where to ask")
}
