// Command probe is what the integration test runs in pods: it serves its host
// name, fetches a page, or looks a name up and says how long that took.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	switch {
	case len(os.Args) == 4 && os.Args[1] == "lookup":
		lookup(os.Args[2], os.Args[3])
	case len(os.Args) == 3 && os.Args[1] == "get":
		get(os.Args[2])
	default:
		serve()
	}
}

func serve() {
	host, err := os.Hostname()
	if err != nil {
		panic(err)
	}
	fmt.Println("probe: serving on", host)
	panic(http.ListenAndServe(":8080", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { //nolint:gosec // a test's server
		fmt.Fprintln(w, "probe:", host)
	})))
}

// get prints a page.
func get(url string) {
	client := http.Client{Timeout: 2 * time.Second}
	res, err := client.Get(url)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer res.Body.Close()
	if _, err := io.Copy(os.Stdout, res.Body); err != nil {
		panic(err)
	}
}

// lookup prints the addresses of name in network "ip4" or "ip6".
func lookup(network, name string) {
	var result struct {
		Addrs    []net.IP
		NotFound bool
		Error    string
		Millis   int64
	}
	start := time.Now()
	addrs, err := net.DefaultResolver.LookupIP(context.Background(), network, name)
	result.Addrs, result.Millis = addrs, time.Since(start).Milliseconds()
	if err != nil {
		var dns *net.DNSError
		var other *net.AddrError // the name has addresses, but none of this kind
		result.Error = err.Error()
		result.NotFound = errors.As(err, &other) || (errors.As(err, &dns) && dns.IsNotFound)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		panic(err)
	}
}
