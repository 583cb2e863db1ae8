package slurmconf

import (
	"fmt"
	"strings"
	"testing"
)

// hostlists100k are 100,000 names in shapes that cost differently.
func hostlists100k() map[string][]string {
	lists := map[string][]string{"joined": nil, "sparse": nil, "racks": nil}
	for i := range 100_000 {
		lists["joined"] = append(lists["joined"], fmt.Sprintf("node%d", i))
		lists["sparse"] = append(lists["sparse"], fmt.Sprintf("node%06d", 2*i))
		lists["racks"] = append(lists["racks"], fmt.Sprintf("r%dn%02d", i/32, i%32))
	}
	return lists
}

func BenchmarkHostlistExpand100k(b *testing.B) {
	for name, names := range hostlists100k() {
		h, err := ParseHostlist(CompressHostlist(names))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name+"/Expand", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if len(h.Expand()) != 100_000 {
					b.Fatal("names are missing")
				}
			}
		})
		b.Run(name+"/All", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				for range h.All() {
					n++
				}
				if n != 100_000 {
					b.Fatal("names are missing")
				}
			}
		})
	}
}

func BenchmarkHostlistCompress100k(b *testing.B) {
	for name, names := range hostlists100k() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if CompressHostlist(names) == "" {
					b.Fatal("empty")
				}
			}
		})
	}
}

func BenchmarkHostlistParse100k(b *testing.B) {
	for name, names := range hostlists100k() {
		for form, in := range map[string]string{"names": strings.Join(names, ","), "compressed": CompressHostlist(names)} {
			b.Run(name+"/"+form, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := ParseHostlist(in); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkParseResumeFile1000Jobs(b *testing.B) {
	var buf strings.Builder
	buf.WriteString(`{"jobs":[`)
	for i := range 1000 {
		if i > 0 {
			buf.WriteByte(',')
		}
		fmt.Fprintf(&buf, `{"exclusive":"NO","extra":null,"job_id":%d,"priority":1,"features":null,"nodes_alloc":"n[%d-%d]","nodes_resume":"n[%d-%d]","oversubscribe":"OK","partition":"cloud","reservation":null}`,
			i+1, 10*i, 10*i+9, 10*i, 10*i+9)
	}
	buf.WriteString(`],"all_nodes_resume":"n[0-9999]"}`)
	data := []byte(buf.String())
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		f, err := ParseResumeFile(data)
		if err != nil || len(f.Jobs) != 1000 || len(f.Problems) != 0 {
			b.Fatal(err, len(f.Jobs), f.Problems)
		}
	}
}
