// Command coredns is CoreDNS with only the plugins the local cluster's Corefile uses.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	// The order in which a query passes the plugins; a plugin not named here would never be called.
	dnsserver.Directives = []string{"bind", "health", "ready", "errors", "kubernetes", "template"}
	coremain.Run()
}
