// Command plot draws the benchmarks of out/bench.json as SVG: what a job takes from zero by its number of nodes, and how fast many pods are made.
// It is a module of its own, so that what draws is nobody else's dependency.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

type spread struct {
	Runs             int
	Min, Median, P95 float64
}

type results struct {
	Cluster struct {
		Latencies []struct {
			Kind     string `json:"kind"`
			Nodes    int    `json:"nodes"`
			Gate     bool   `json:"gate"`
			FromZero spread `json:"from_zero_s"`
			Up       spread `json:"up_s"`
		} `json:"latencies"`
		Direct []struct {
			Nodes   int    `json:"nodes"`
			Running spread `json:"running_s"`
		} `json:"direct"`
		Fleets []struct {
			Nodes  int `json:"nodes"`
			Jobs   int `json:"jobs"`
			Direct struct {
				PerSecond float64 `json:"created_per_second"`
			} `json:"direct"`
			Bridge struct {
				PerSecond float64 `json:"created_per_second"`
			} `json:"bridge"`
		} `json:"fleets"`
	} `json:"cluster"`
}

func main() {
	in := flag.String("in", "out/bench.json", "the results of make bench")
	dir := flag.String("out", "out", "where the drawings go")
	flag.Parse()
	if err := run(*in, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench plot:", err)
		os.Exit(1)
	}
}

func run(in, dir string) error {
	text, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	var r results
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("reading %s: %w", in, err)
	}
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	latency, err := r.latency()
	if err != nil {
		return err
	}
	fleet, err := r.fleet()
	if err != nil {
		return err
	}
	for name, p := range map[string]*plot.Plot{"bench-latency.svg": latency, "bench-fleet.svg": fleet} {
		p.BackgroundColor = color.White // readable also where the page is dark
		if err := p.Save(7*vg.Inch, 4*vg.Inch, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

var colours = []color.Color{
	color.RGBA{R: 0x1b, G: 0x6c, B: 0xa8, A: 0xff}, color.RGBA{R: 0xd9, G: 0x5f, B: 0x02, A: 0xff},
	color.RGBA{R: 0x55, G: 0x55, B: 0x55, A: 0xff}, color.RGBA{R: 0x2e, G: 0x8b, B: 0x57, A: 0xff},
}

// latency draws batch jobs; whiskers go from the fastest run to the 95th percentile.
func (r *results) latency() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "Batch job: seconds from sbatch to RUNNING"
	p.X.Label.Text, p.Y.Label.Text = "nodes", "seconds"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Y.Tick.Marker = labelled{0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100}
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(2)
	lines := []struct {
		name   string
		points []point
	}{{"from zero, without the start gate", nil}, {"from zero", nil}, {"bare pods Running", nil}, {"nodes already up", nil}}
	var sizes labelled
	for _, l := range r.Cluster.Latencies {
		switch {
		case l.Kind != "batch":
		case l.Gate:
			sizes = append(sizes, float64(l.Nodes))
			lines[1].points = append(lines[1].points, point{l.Nodes, l.FromZero})
			lines[3].points = append(lines[3].points, point{l.Nodes, l.Up})
		default:
			lines[0].points = append(lines[0].points, point{l.Nodes, l.FromZero})
		}
	}
	for _, d := range r.Cluster.Direct {
		lines[2].points = append(lines[2].points, point{d.Nodes, d.Running})
	}
	p.X.Tick.Marker = sizes
	for i, l := range lines {
		if len(l.points) == 0 {
			return nil, fmt.Errorf("there is nothing to draw for %q", l.name)
		}
		slices.SortFunc(l.points, func(a, b point) int { return a.nodes - b.nodes })
		line, points, err := plotter.NewLinePoints(series(l.points))
		if err != nil {
			return nil, err
		}
		whiskers, err := plotter.NewYErrorBars(series(l.points))
		if err != nil {
			return nil, err
		}
		line.Color, points.Color, whiskers.Color = colours[i], colours[i], colours[i]
		points.Shape = draw.CircleGlyph{}
		p.Add(line, points, whiskers)
		p.Legend.Add(l.name, line, points)
	}
	p.Y.Max *= 4 // room for the legend
	p.X.Max *= 1.2
	return p, nil
}

type point struct {
	nodes int
	spread
}

type series []point

func (s series) Len() int                    { return len(s) }
func (s series) XY(i int) (float64, float64) { return float64(s[i].nodes), s[i].Median }
func (s series) YError(i int) (float64, float64) {
	return s[i].Median - s[i].Min, s[i].P95 - s[i].Median
}

// labelled are ticks at certain values and nowhere else.
type labelled []float64

func (l labelled) Ticks(least, most float64) (ticks []plot.Tick) {
	for _, v := range l {
		if v >= least && v <= most {
			ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'g', -1, 64)})
		}
	}
	return ticks
}

// fleet draws how many pods are created in a second.
func (r *results) fleet() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "Many nodes at once: pods created in a second"
	p.Y.Label.Text = "pods a second"
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Points(2)
	var names []string
	var direct, bridge plotter.Values
	for _, f := range r.Cluster.Fleets {
		jobs := "one job"
		if f.Jobs > 1 {
			jobs = fmt.Sprintf("%d jobs", f.Jobs)
		}
		names = append(names, fmt.Sprintf("%d nodes, %s", f.Nodes, jobs))
		direct, bridge = append(direct, f.Direct.PerSecond), append(bridge, f.Bridge.PerSecond)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there are no fleets to draw")
	}
	const width = 30
	for i, s := range []struct {
		name   string
		values plotter.Values
	}{{"bare pods, a client with the bridge's limits", direct}, {"the bridge, from ResumeProgram's request", bridge}} {
		bars, err := plotter.NewBarChart(s.values, width)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width, bars.Offset = colours[2-i], 0, vg.Length(i*width-width/2)
		p.Add(bars)
		p.Legend.Add(s.name, bars)
	}
	p.NominalX(names...)
	p.Y.Max *= 1.3 // room for the legend
	p.X.Min, p.X.Max = -0.5, float64(len(names))-0.5
	return p, nil
}
