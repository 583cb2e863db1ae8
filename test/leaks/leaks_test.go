package leaks

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestIn(t *testing.T) {
	key := []byte("\x00\x9fk\"e\\y bytes of auth/slurm\xfe\xff and more")
	s := Secrets{"slurm.key": key, "password": []byte("hunter2"), "PEM": []byte("first line of it\nsecond line of it\n")}
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"short":             {"msg=request id=1767225600123456789\nmsg=done,hunter2.", []string{"line 2 has password"}},
		"nothing":           {"msg=request\nhunter 2, slurm.key, eyJ is no token, BEGIN CERTIFICATE", nil},
		"raw":               {"x " + string(key), []string{"line 1 has slurm.key"}},
		"cut short":         {"x bytes of auth", []string{"line 1 has slurm.key"}},
		"quoted":            {`x \x00\x9fk\"e\\y b`, []string{"line 1 has slurm.key"}},
		"quoted twice":      {`x "\\x00\\x9fk\\\"e\\\\y b"`, []string{"line 1 has slurm.key"}},
		"numbers":           {fmt.Sprint(map[string][]byte{"k": key}), []string{"line 1 has slurm.key"}},
		"hex":               {"x\n" + hex.EncodeToString(key)[10:50], []string{"line 2 has slurm.key"}},
		"base64":            {base64.StdEncoding.EncodeToString(key), []string{"line 1 has slurm.key"}},
		"base64 of more":    {base64.RawURLEncoding.EncodeToString(append([]byte("ab"), key...)), []string{"line 1 has slurm.key"}},
		"base64 of more, 2": {base64.StdEncoding.EncodeToString(append([]byte("abcd"), key...)), []string{"line 1 has slurm.key"}},
		"a line of it":      {`msg="second line of it"`, []string{"line 1 has PEM"}},
		"JWT":               {"token=eyJhbGciOiJIUzI1NiJ9.e30.x", []string{"line 1 has eyJhbGciOiJI…"}},
		"private key":       {"-----BEGIN OPENSSH PRIVATE KEY-----", []string{"line 1 has -----BEGIN O…"}},
		"twice":             {"hunter2 hunter2", []string{"line 1 has password"}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, s.In(tc.text)) })
	}
}
