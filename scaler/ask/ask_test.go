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
		_, err := At(wrong, TLS{})
		assert.ErrorContains(t, err, "expected a URL such as http://localhost:9443", wrong)
	}
}

func TestAskingInVain(t *testing.T) {
	says := map[string]string{"/other/demand": "{}", "/null/demand": "null", "/html/demand": "<html>", "/long/demand": `{"cluster":"` + strings.Repeat("a", mostSaid) + `"}`}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, ok := says[r.URL.Path]; ok {
			_, _ = w.Write([]byte(text))
			return
		}
		http.NotFound(w, r)
	}))
	for path, want := range map[string]string{"/other": "names no cluster", "/null": "names no cluster", "/html": "is it of another version?", "/long": "is it of another version?", "/old": "404 page not found"} {
		s, err := At(server.URL+path, TLS{})
		require.NoError(t, err)
		_, err = s.Demand(t.Context(), "")
		require.ErrorContains(t, err, want, path)
	}
	s, err := At(server.URL, TLS{})
	require.NoError(t, err)
	server.Close()
	_, err = s.Demand(t.Context(), "")
	assert.ErrorContains(t, err, "is it running there? --scaler says where to ask")
}

// People and the page have to see that there is no answer, in a line: what a proxy says has no form, and may be nothing.
func TestRefusals(t *testing.T) {
	for said, want := range map[string]string{
		"":                             "502 Bad Gateway",
		" \n":                          "502 Bad Gateway",
		"no figures yet\n":             "no figures yet",
		"<html>\n\n<h1>\x1b[2JNo</h1>": "<html> <h1> [2JNo</h1>",
		strings.Repeat("é", 100_000):   strings.Repeat("é", mostRefused) + " …",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte(said))
		}))
		s, err := At(server.URL, TLS{})
		require.NoError(t, err)
		_, err = s.Demand(t.Context(), "")
		server.Close()
		assert.EqualError(t, err, want)
	}
}
