// Command weig-go answers the requests of the adapter protocol, one line each.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"

	"weig-go/weig"
)

// Longer content is answered with its digest, also where hex was asked for.
const maxHex = 4096

type object = map[string]any

type tensor struct {
	Name    string   `json:"name"`
	Dtype   string   `json:"dtype"`
	Shape   []uint64 `json:"shape"`
	Nbytes  uint64   `json:"nbytes"`
	Backing string   `json:"backing"`
	Align   uint64   `json:"align"`
	SHA256  string   `json:"sha256,omitempty"`
	Data    *string  `json:"data,omitempty"` // a pointer, because no bytes are content too
}

// check ends a request with a panic, which answer tells, or the program.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

var choices = []string{"via=mmap", "via=read", "level=open", "level=deep", "data=sha256", "data=hex", "data=none"}

// describe keeps digests by place: many names for one tensor must not cost many passes over it.
func describe(t *weig.Tensor, backing, content string, digests map[weig.Span]string) tensor {
	align := uint64(1) << min(bits.TrailingZeros64(uint64(t.Address())), 16)
	d := tensor{t.Name, t.Dtype.Name, t.Shape, t.Data.Size, backing, align, "", nil}
	if content == "hex" && t.Data.Size <= maxHex {
		var text strings.Builder
		check(t.WriteLittleEndian(hex.NewEncoder(&text)))
		data := text.String()
		d.Data = &data
	} else if content != "none" {
		if digests[t.Data] == "" {
			sum := sha256.New()
			check(t.WriteLittleEndian(sum))
			digests[t.Data] = hex.EncodeToString(sum.Sum(nil))
		}
		d.SHA256 = digests[t.Data]
	}
	return d
}

// held is the file of the last request "open", or nil.
var held *weig.File

func load(path string, options map[string]string, hold bool) object {
	if held != nil {
		_ = held.Close()
		held = nil
	}
	mode := weig.Mmap
	if options["via"] == "read" {
		mode = weig.Read
	}
	f, err := weig.Open(path, mode)
	check(err)
	defer func() {
		if f != held {
			_ = f.Close()
		}
	}()
	if options["level"] == "deep" {
		check(f.Verify())
	}
	reply := accept(f, options["data"])
	if hold {
		held = f
	}
	return reply
}

func accept(f *weig.File, content string) object {
	backing := "mmap"
	if f.Mode == weig.Read {
		backing = "copy"
	}
	order := strings.ToLower(strings.TrimSuffix(f.Order.String(), "Endian"))
	tensors := make([]tensor, len(f.Tensors))
	digests := make(map[weig.Span]string)
	for i, t := range f.Tensors {
		tensors[i] = describe(t, backing, content, digests)
	}
	return object{"status": "accepted", "byte_order": order, "count": len(f.Tensors), "tensors": tensors}
}

func answer(line string) (reply object) {
	fields := append(strings.Split(line, "\t"), "") // an id, also where the request has none
	if fields[0] == "hello" {
		return object{
			"protocol": 1, "loader": "weig-go", "version": "0.1.0", "language": "go", "spec": []string{"1"},
			"profiles": []string{"core", "big-endian", "deep", "mmap", "data", "held-mmap", "held-read"},
		}
	}
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case *weig.Error:
			reply = object{"status": "rejected", "error": cause.Code, "message": cause.Message, "field": cause.Field}
		default: // a fault of this program; it is told, not hidden
			reply = object{"status": "internal", "message": fmt.Sprintf("%+q", fmt.Sprint(cause))}
		}
		reply["id"] = fields[1]
	}()
	options := map[string]string{"via": "mmap", "level": "open", "data": "sha256"}
	for _, field := range fields[2:] { // a path, which begins with a slash, is no key that is known
		key, value, _ := strings.Cut(field, "=")
		// Unknown keys are skipped, as the protocol says; an unknown value of a known key is told.
		if _, known := options[key]; known && !slices.Contains(choices, field) {
			return object{"status": "unsupported", "message": fmt.Sprintf("unknown value: %+q", field)}
		}
		options[key] = value
	}
	switch verb := fields[0]; {
	case (verb == "load" || verb == "open") && len(fields) > 3:
		return load(fields[2], options, verb == "open")
	case verb == "check" && held != nil:
		check(held.CheckUnmodified())
		return object{"status": "unmodified"}
	case verb == "access" && held != nil:
		return accept(held, options["data"])
	}
	return object{"status": "unsupported", "message": "unknown request"}
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	out := json.NewEncoder(os.Stdout) // one write a line, so nothing waits in a buffer
	for in.Scan() {
		check(out.Encode(answer(in.Text())))
	}
	check(in.Err())
}
