// Command weig-go answers the requests of the adapter protocol, one line each.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/bits"
	"os"
	"strings"

	"weig-go/weig"
)

// Longer content is answered with its digest, also where hex was asked for.
const maxHex = 4096

type greeting struct {
	Protocol int      `json:"protocol"`
	Loader   string   `json:"loader"`
	Version  string   `json:"version"`
	Language string   `json:"language"`
	Spec     []string `json:"spec"`
	Profiles []string `json:"profiles"`
	Dtypes   []string `json:"dtypes"`
}

type accepted struct {
	ID        string   `json:"id"`
	Status    string   `json:"status"`
	ByteOrder string   `json:"byte_order"`
	Count     int      `json:"count"`
	Tensors   []tensor `json:"tensors"`
}

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

type refused struct {
	ID      string    `json:"id"`
	Status  string    `json:"status"`
	Error   weig.Code `json:"error,omitempty"`
	Message string    `json:"message"`
	Field   string    `json:"field,omitempty"`
}

type options struct {
	mode    weig.Mode
	deep    bool
	content string
}

// set reads one key=value. Unknown keys are skipped, as the protocol says; an unknown value of a
// known key is told.
func (o *options) set(field string) error {
	switch field {
	case "via=mmap":
		o.mode = weig.Mmap
	case "via=read":
		o.mode = weig.Read
	case "level=open":
		o.deep = false
	case "level=deep":
		o.deep = true
	case "data=sha256", "data=hex", "data=none":
		o.content = strings.TrimPrefix(field, "data=")
	default:
		switch key, _, _ := strings.Cut(field, "="); key {
		case "via", "level", "data":
			return fmt.Errorf("unknown value: %+q", field)
		}
	}
	return nil
}

// place is equal for aliases: many names for one tensor must not cost many passes over it.
type place struct {
	offset, size uint64
	dtype        weig.Dtype
}

func describe(t *weig.Tensor, content string, digests map[place]string) (tensor, error) {
	d := tensor{Name: t.Name(), Dtype: t.Dtype().String(), Shape: t.Shape(), Nbytes: t.Size(), Backing: "copy"}
	if t.Mapped() {
		d.Backing = "mmap"
	}
	at, err := t.Address()
	if err != nil {
		return d, err
	}
	d.Align = 1 << min(bits.TrailingZeros64(uint64(at)), 16)
	switch {
	case content == "none":
	case content == "hex" && t.Size() <= maxHex:
		var text strings.Builder
		err = t.WriteLittleEndian(hex.NewEncoder(&text))
		s := text.String()
		d.Data = &s
	default:
		key := place{t.Offset(), t.Size(), t.Dtype()}
		if digests[key] == "" {
			sum := sha256.New()
			err = t.WriteLittleEndian(sum)
			digests[key] = hex.EncodeToString(sum.Sum(nil))
		}
		d.SHA256 = digests[key]
	}
	return d, err
}

func load(id, path string, o options) (any, error) {
	f, err := weig.Open(path, o.mode)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if o.deep {
		if err := f.Verify(); err != nil {
			return nil, err
		}
	}
	a := accepted{ID: id, Status: "accepted", ByteOrder: "little", Count: f.Len(), Tensors: []tensor{}}
	if f.BigEndian() {
		a.ByteOrder = "big"
	}
	digests := make(map[place]string)
	for i := range f.Len() {
		t, err := f.Tensor(i)
		if err != nil {
			return nil, err
		}
		d, err := describe(t, o.content, digests)
		if err != nil {
			return nil, err
		}
		a.Tensors = append(a.Tensors, d)
	}
	return a, nil
}

func answer(line string) (reply any) {
	fields := strings.Split(line, "\t")
	id := ""
	if len(fields) > 1 {
		id = fields[1]
	}
	// A panic would be a fault of this program; it is told, not hidden.
	defer func() {
		if cause := recover(); cause != nil {
			reply = refused{ID: id, Status: "internal", Message: fmt.Sprintf("%+q", fmt.Sprint(cause))}
		}
	}()
	switch {
	case fields[0] == "hello":
		return greeting{1, "weig-go", "0.1.0", "go", []string{"1"},
			[]string{"core", "big-endian", "deep", "mmap", "data"}, weig.Dtypes()}
	case fields[0] != "load" || len(fields) < 3:
		return refused{ID: id, Status: "unsupported", Error: "UNSUPPORTED", Message: "unknown request"}
	}
	o := options{content: "sha256"}
	for _, field := range fields[3:] {
		if err := o.set(field); err != nil {
			return refused{ID: id, Status: "unsupported", Error: "UNSUPPORTED", Message: err.Error()}
		}
	}
	reply, err := load(id, fields[2], o)
	if err == nil {
		return reply
	}
	if refusal := (*weig.Error)(nil); errors.As(err, &refusal) {
		return refused{id, "rejected", refusal.Code, refusal.Message, refusal.Field}
	}
	return refused{ID: id, Status: "internal", Message: err.Error()}
}

func main() {
	in := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout) // one write a line, so nothing waits in a buffer
	for {
		line, err := in.ReadString('\n')
		if line = strings.TrimRight(line, "\r\n"); line != "" || err == nil {
			if err := out.Encode(answer(line)); err != nil {
				log.Fatal(err)
			}
		}
		if err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
	}
}
