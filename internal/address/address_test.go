package address

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestHost(t *testing.T) {
	for text, want := range map[string]string{
		"https://otel:4318/hunter2/v1/traces":     "https://otel:4318",
		"http://user:hunter2@otel?token=hunter2":  "http://otel",
		"http://[2001:db8::1]:4318/hunter2":       "http://[2001:db8::1]:4318",
		"http://user:hunter2@ho st":               "…",
		"hunter2":                                 "…",
		"unix:///run/slurmrestd.sock?key=hunter2": "…",
	} {
		assert.Equal(t, want, Host(text), text)
	}
}

func TestHide(t *testing.T) {
	for text, want := range map[string]string{
		`Post "https://otel/hunter2/v1/traces": dial tcp: connection refused`:     `Post "https://otel": dial tcp: connection refused`,
		"failed to send to http://otel:4318/hunter2: 401 Unauthorized (body: no)": "failed to send to http://otel:4318: 401 Unauthorized (body: no)",
		"see HTTP://u:hunter2@a/b, or (https://b/hunter2).":                       "see http://a, or (https://b).",
		"http://ho%zzst/hunter2": "…",
		"no address at all":      "no address at all",
	} {
		assert.Equal(t, want, Hide(text), text)
	}
}

func TestQuoted(t *testing.T) {
	for typed, want := range map[string]string{
		"localhost:9443":                `"localhost:9443"`,
		"http://u:hun?ter2@ho st/path":  `"…@ho st/path"`,
		"u:hunter2@host":                `"…@host"`,
		"http://host?token=hunter2":     `"http://host?…"`,
		"http://host/#hunter2":          `"http://host/#…"`,
		"http://host?token=hunter2@abc": `"…@abc"`,
		"":                              `""`,
	} {
		assert.Equal(t, want, Quoted(typed), typed)
	}
}
