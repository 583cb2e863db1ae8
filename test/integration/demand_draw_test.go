//go:build integration && scale

package integration

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// drawnQueue is two shell scripts that submit jobs of many shapes, held. @ stands for the copy of the nodes and partitions that they go to.
type drawnQueue struct{ first, second string }

// drawQueue makes one up: often some jobs run already when the others come.
func drawQueue(random *rand.Rand) drawnQueue {
	var q drawnQueue
	if random.IntN(2) == 0 {
		q.first = drawJobs(random, 1+random.IntN(3))
	}
	q.second = drawJobs(random, 3+random.IntN(8))
	return q
}

func drawJobs(random *rand.Rand, jobs int) string {
	pick := func(options ...string) string { return options[random.IntN(len(options))] }
	var script strings.Builder
	for range jobs {
		options := ""
		switch random.IntN(9) {
		case 0: // nodes
			n := 1 + random.IntN(3)
			options = fmt.Sprintf("-p @%s -N %d --mem=%s", pick("cpu", "cpu", "big", "any"), n, pick("1000", "9000", "16000")) + pick("", " --exclusive", " --ntasks-per-node=3")
		case 1: // tasks
			options = fmt.Sprintf("-p @%s -n %d -c %d --mem-per-cpu=%s", pick("cpu", "cpu", "big"), 1+random.IntN(10), 1+random.IntN(3), pick("500", "1900"))
		case 2: // one node
			options = fmt.Sprintf("-p @%s -N 1 -n %d --mem=%s", pick("cpu", "any"), 1+random.IntN(7), pick("500", "5000"))
		case 3: // GPUs
			options = "-p @big " + pick("--gpus-per-node=2", "--gres=gpu:h100:1 -N 2", "--gpus=3 -N 1", "--gpus-per-task=1 -n 5", "--gpus-per-node=1 --cpus-per-gpu=5 -N 1") + " --mem=" + pick("4000", "30000")
		case 4: // array
			options = fmt.Sprintf("-p @cpu --array=0-%d -n %d --mem=%s", random.IntN(9), 1+random.IntN(4), pick("1000", "6000"))
			if random.IntN(2) == 0 {
				options = strings.Replace(options, " -n", fmt.Sprintf("%%%d -n", 1+random.IntN(4)), 1)
			}
		case 5: // ranges and several partitions
			options = pick("-p @cpu -N 1-3 -n 6 --mem=2000", "-p @any -N 2-4 -n 12 --mem=3000", "-p @cpu,@big -n 4 --mem=8000", "-p @big,@cpu -N 2 --mem=2000")
		case 7: // het job: backfill alone starts those
			second := pick("-p @cpu -n 3 --mem=1000", "-p @cpu -N 2 --mem=9000", "-p @big -n 4 --mem=2000", "-p @big --gpus-per-node=1 --mem=4000")
			fmt.Fprintf(&script, "printf '#!/bin/sh\\nsleep 1000\\n' | sbatch --hold --output=/dev/null -p @cpu -n %d --mem=%s : --hold %s >/dev/null\n", 1+random.IntN(6), pick("500", "6000"), second)
			continue
		case 8: // nodes shared in other ways
			options = pick("-p @both -s -n 3 --mem=1000", "-p @both -s -N 2 --mem=2000", "-p @both -n 5 --mem=500", "-p @cpu --exclusive=user -n 3 --mem=1000", "-p @any --exclusive=user -N 2 --mem=2000")
		default: // features and names
			options = "-p @any --mem=1000 " + pick("-C big", "-C 'avx|big' -n 4", "-C '[avx|big]' -N 2", "-C 'big*1' -N 2", "-w @cpu-7", "-x @cpu-[0-3] -N 2", "--threads-per-core=1 -C big -n 6")
		}
		fmt.Fprintf(&script, "sbatch --hold --output=/dev/null %s --wrap 'sleep 1000' >/dev/null\n", options)
	}
	return script.String()
}
