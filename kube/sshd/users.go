package sshd

import (
	"fmt"
	"strconv"
	"strings"
)

// leastID is the least ID of users and groups that libnss-extrausers takes; the primary group may also be gidUsers.
const (
	leastID  = 500
	gidUsers = 100
)

// CheckUsers says what is wrong in the files of a usersRef. libnss-extrausers passes over such lines without a word.
func CheckUsers(files map[string]string) error {
	if strings.TrimSpace(files["passwd"]) == "" {
		return fmt.Errorf("there is no passwd, or an empty one: write users as in /etc/passwd, name:x:uid:gid:comment:home:shell")
	}
	for file, fields := range map[string]int{"passwd": 7, "group": 4} {
		number := 0
		for line := range strings.Lines(files[file]) {
			number++
			line = strings.TrimRight(line, "\r\n")
			if line == "" {
				continue
			}
			word := strings.Split(line, ":")
			if len(word) != fields || word[0] == "" {
				return fmt.Errorf("%s:%d: %q has not the form of a line of /etc/%s, %d fields with colons between them", file, number, line, file, fields)
			}
			if id, err := strconv.ParseUint(word[2], 10, 32); err != nil || id < leastID {
				return fmt.Errorf("%s:%d: the ID of %s is %q: it must be a number, %d or more", file, number, word[0], word[2], leastID)
			}
			if file != "passwd" {
				continue
			}
			if id, err := strconv.ParseUint(word[3], 10, 32); err != nil || id < leastID && id != gidUsers {
				return fmt.Errorf("%s:%d: the group ID of %s is %q: it must be a number, %d or more", file, number, word[0], word[3], leastID)
			}
		}
	}
	return nil
}
