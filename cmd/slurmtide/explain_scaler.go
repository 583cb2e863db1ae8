package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/slurmtide/slurmtide/internal/cli"
)

// maxExplained is more than a scaler says of a job in thousands of clusters.
const maxExplained = 1 << 20

// scalerURL is where the scaler explains a job.
func scalerURL(scaler, cluster string, id uint32, asJSON bool) (string, error) {
	base, err := url.Parse(scaler)
	if err != nil || base.Host == "" {
		return "", cli.UsageError("--scaler %q: expected a URL such as http://localhost:9443", scaler)
	}
	at := base.JoinPath("explain", "job", strconv.FormatUint(uint64(id), 10))
	query := url.Values{}
	if cluster != "" {
		query.Set("cluster", cluster)
	}
	if asJSON {
		query.Set("output", "json")
	}
	at.RawQuery = query.Encode()
	return at.String(), nil
}

// demand is what the scaler makes of a job: lines for people, or JSON if it is asked for.
func demand(ctx context.Context, at string, asJSON bool) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, fmt.Errorf("asking the scaler: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking the scaler: %w; is it running there? --scaler says where to ask", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxExplained))
	if err != nil {
		return nil, fmt.Errorf("reading the scaler's answer: %w", err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, errors.New(strings.TrimSpace(string(text)))
	}
	if asJSON && !json.Valid(text) {
		return nil, errors.New("the scaler answers in text alone: it is of an older version; leave --output out")
	}
	return text, nil
}
