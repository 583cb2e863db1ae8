package sshd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckUsers(t *testing.T) {
	tests := map[string]struct{ passwd, group, want string }{
		"good":          {"alice:x:1000:1000:Alice:/home/alice:/bin/bash\n\nbob:*:1001:100::/home/bob:/bin/sh\n", "staff:x:2000:alice,bob\n", ""},
		"nothing":       {"", "", "there is no passwd, or an empty one: write users as in /etc/passwd, name:x:uid:gid:comment:home:shell"},
		"no colons":     {"alice", "", `passwd:1: "alice" has not the form of a line of /etc/passwd, 7 fields with colons between them`},
		"no name":       {":x:1000:1000::/:/bin/sh", "", `passwd:1: ":x:1000:1000::/:/bin/sh" has not the form of a line of /etc/passwd, 7 fields with colons between them`},
		"a system user": {"alice:x:1000:1000::/:/bin/sh\nroot:x:0:0::/root:/bin/sh", "", `passwd:2: the ID of root is "0": it must be a number, 500 or more`},
		"group ID":      {"alice:x:1000:0::/:/bin/sh", "", `passwd:1: the group ID of alice is "0": it must be a number, 500 or more`},
		"group":         {"alice:x:1000:1000::/:/bin/sh", "staff:x:2000", `group:1: "staff:x:2000" has not the form of a line of /etc/group, 4 fields with colons between them`},
		"system group":  {"alice:x:1000:1000::/:/bin/sh", "sudo:x:27:alice", `group:1: the ID of sudo is "27": it must be a number, 500 or more`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := CheckUsers(map[string]string{"passwd": test.passwd, "group": test.group})
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, test.want)
		})
	}
}
