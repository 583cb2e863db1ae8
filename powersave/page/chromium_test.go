//go:build browser

package page

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// browser is a Chromium without a window that is steered over a pipe by the DevTools protocol, with one tab.
type browser struct {
	t       *testing.T
	to      *os.File
	session string

	mu      sync.Mutex
	last    int
	waiting map[int]chan message
	urls    []string // that were asked for
	wrong   []string // what the console complains of, and errors of scripts
}

type message struct {
	ID     int             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
	Session string `json:"sessionId,omitempty"`
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	require.NoError(t, err, "this test needs Chromium: hack/need.sh chromium chromium installs it")
	theirs, ours, err := os.Pipe()
	require.NoError(t, err)
	from, out, err := os.Pipe()
	require.NoError(t, err)
	command := exec.Command(program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--user-data-dir="+t.TempDir(), "about:blank")
	command.ExtraFiles = []*os.File{theirs, out}
	command.Env = append(os.Environ(), "TZ=UTC")
	var said bytes.Buffer
	command.Stderr = &said
	require.NoError(t, command.Start())
	theirs.Close()
	out.Close()
	b := &browser{t: t, to: ours, waiting: map[int]chan message{}}
	go b.read(from)
	t.Cleanup(func() {
		ours.Close() // it ends
		timer := time.AfterFunc(20*time.Second, func() { _ = command.Process.Kill() })
		defer timer.Stop()
		if err := command.Wait(); err != nil && t.Failed() {
			t.Logf("chromium: %v: %s", err, said.String())
		}
		from.Close()
	})
	var target struct {
		ID string `json:"targetId"`
	}
	b.do("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		Session string `json:"sessionId"`
	}
	b.do("Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &attached)
	b.session = attached.Session
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Accessibility"} {
		b.do(domain+".enable", nil, nil)
	}
	return b
}

func (b *browser) read(from *os.File) {
	lines := bufio.NewReader(from)
	for {
		text, err := lines.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		switch {
		case m.ID != 0:
			if waits := b.waiting[m.ID]; waits != nil {
				waits <- m
			}
			delete(b.waiting, m.ID)
		case m.Method == "Network.requestWillBeSent":
			var p struct {
				Request struct {
					URL string `json:"url"`
				} `json:"request"`
			}
			_ = json.Unmarshal(m.Params, &p)
			b.urls = append(b.urls, p.Request.URL)
		case m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded":
			b.wrong = append(b.wrong, string(m.Params))
		}
		b.mu.Unlock()
	}
}

// do asks the browser, and fails the test if it refuses.
func (b *browser) do(method string, params, result any) {
	b.t.Helper()
	answered := make(chan message, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.waiting[id] = answered
	b.mu.Unlock()
	text, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params, "sessionId": b.session})
	require.NoError(b.t, err)
	if b.session == "" {
		text = bytes.Replace(text, []byte(`,"sessionId":""`), nil, 1)
	}
	if params == nil {
		text = bytes.Replace(text, []byte(`,"params":null`), nil, 1)
	}
	_, err = b.to.Write(append(text, 0))
	require.NoError(b.t, err)
	select {
	case m := <-answered:
		require.Nil(b.t, m.Error, "%s: %+v", method, m.Error)
		if result != nil {
			require.NoError(b.t, json.Unmarshal(m.Result, result))
		}
	case <-time.After(60 * time.Second):
		require.Fail(b.t, "chromium does not answer", method)
	}
}

// eval returns what an expression of JavaScript is, as JSON.
func (b *browser) eval(expression string, into any) {
	b.t.Helper()
	require.NoError(b.t, json.Unmarshal(b.act(expression), into), expression)
}

// act evaluates an expression of JavaScript for what it does, and fails the test if it throws. What it is, is nothing if it is undefined.
func (b *browser) act(expression string) json.RawMessage {
	b.t.Helper()
	var got struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text string `json:"text"`
		} `json:"exceptionDetails"`
	}
	b.do("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &got)
	require.Nil(b.t, got.Exception, "%s: %+v", expression, got.Exception)
	return got.Result.Value
}

func (b *browser) text(expression string) (text string) {
	b.t.Helper()
	b.eval(expression, &text)
	return text
}

// until waits for an expression to be true.
func (b *browser) until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var is bool
		if b.eval("!!("+expression+")", &is); is {
			return
		}
		require.True(b.t, time.Now().Before(end), "%s does not come true; the page says:\n%s", expression, b.text("document.body.innerText"))
	}
}

func (b *browser) open(url string) { b.do("Page.navigate", map[string]any{"url": url}, nil) }

// press presses a key; those of one character type it.
func (b *browser) press(key string) {
	b.t.Helper()
	down := map[string]any{"type": "keyDown", "key": key}
	switch {
	case len(key) == 1:
		down["text"] = key
	case key == "Enter":
		down["text"], down["windowsVirtualKeyCode"] = "\r", 13
	case key == "Tab":
		down["windowsVirtualKeyCode"] = 9
	case key == "Escape":
		down["windowsVirtualKeyCode"] = 27
	}
	b.do("Input.dispatchKeyEvent", down, nil)
	b.do("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key}, nil)
}

// hold presses a key while Ctrl is held.
func (b *browser) hold(key string) {
	b.t.Helper()
	b.do("Input.dispatchKeyEvent", map[string]any{"type": "rawKeyDown", "key": key, "modifiers": 2}, nil)
	b.do("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "modifiers": 2}, nil)
}

func (b *browser) write(text string) {
	for _, key := range strings.Split(text, "") {
		b.press(key)
	}
}

// shape is the size of the window and the colours that people have chosen.
func (b *browser) shape(width, height int, scheme string) {
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	b.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// keep writes a picture of the page beside those of other runs.
func (b *browser) keep(name string) {
	b.t.Helper()
	var shot struct {
		Data string `json:"data"`
	}
	b.do("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &shot)
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(b.t, err)
	dir := filepath.Join("..", "..", "out", "page")
	require.NoError(b.t, os.MkdirAll(dir, 0o755))
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
}

// complaints are what was wrong since the last time.
func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.wrong
	b.wrong = nil
	return all
}

// asked is how many requests were for something.
func (b *browser) asked(what string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, url := range b.urls {
		if strings.Contains(url, what) {
			n++
		}
	}
	return n
}

// strange are the requests that were not for the server.
func (b *browser) strange(server string) (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, url := range b.urls {
		if !strings.HasPrefix(url, server) && !strings.HasPrefix(url, "about:") {
			all = append(all, fmt.Sprintf("%.200s", url))
		}
	}
	return all
}
