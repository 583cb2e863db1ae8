package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"

	"github.com/slurmtide/slurmtide/kube/pods"
)

// event is what of an audit event matters.
type event struct {
	Verb, RequestURI string
	ObjectRef        struct{ APIGroup, Resource, Subresource string }
	ResponseStatus   struct{ Code int }
	Annotations      map[string]string
}

// allowedBy finds the role in `RBAC: allowed by RoleBinding "b/ns" of Role "r" to ServiceAccount "a/ns"`.
var allowedBy = regexp.MustCompile(`^RBAC: allowed by \S+ "[^"]*" of (?:Cluster)?Role "([^"]*)"`)

// bridgeRoles are what a bridge's roles are called, also by hack/stack. They are one here: of two that give the same the log names one, so that for events about pods it
// is the one for events about hosts.
var bridgeRoles = regexp.MustCompile(`^(bridge|slurmtide-bridge-.+)$`)

func roleName(name string) string { return bridgeRoles.ReplaceAllString(name, bridgeRole) }

// readLog reads what was done with which role.
func (r rights) readLog(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("reading the audit log of the API server: %w", err)
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for number := 1; ; number++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // a last line without an end is being written
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		// An API server that was killed leaves half a line, and the next one goes on behind it.
		line = line[max(0, bytes.LastIndex(line, []byte(`{"kind":"Event"`))):]
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%s:%d: no audit event: %w", file, number, err)
		}
		r.use(&e)
	}
}

// use adds what was asked of the roles for one request.
func (r rights) use(e *event) {
	role := allowedBy.FindStringSubmatch(e.Annotations["authorization.k8s.io/reason"])
	if role == nil || e.Annotations["authorization.k8s.io/decision"] != "allow" {
		return
	}
	verbs := []string{e.Verb}
	switch {
	case e.Verb == "patch" && e.ResponseStatus.Code == http.StatusCreated:
		verbs = append(verbs, "create") // an apply that makes the object needs both
	case e.Verb == "watch" && query(e.RequestURI).Has("sendInitialEvents"):
		verbs = append(verbs, "list") // what the client falls back to, and all that older API servers know
	}
	on := pods.Right{Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource}
	for _, verb := range verbs {
		r.add(roleName(role[1]), verb, on)
	}
}

func query(uri string) url.Values {
	u, err := url.Parse(uri)
	if err != nil {
		return nil
	}
	return u.Query()
}
