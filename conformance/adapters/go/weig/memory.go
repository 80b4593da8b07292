package weig

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// identity tells a file from another one and from its own later states (OPEN-10).
type identity struct {
	dev, ino uint64
	size     int64
	mtime    unix.Timespec
}

// openRegular opens a regular file and never waits (OPEN-1, OPEN-2). The size comes from the
// descriptor (OPEN-3).
func openRegular(path string) (*os.File, identity, error) {
	irregular := refuse(NotRegularFile, "", "OPEN-1: not a regular file")
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		// A socket, or a device without a driver, cannot even be opened: only its path can tell.
		if info, e := os.Stat(path); e == nil && !info.Mode().IsRegular() {
			return nil, identity{}, irregular
		}
		return nil, identity{}, refused(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		f.Close()
		return nil, identity{}, irregular
	}
	id, err := identify(f)
	if err != nil {
		f.Close()
		return nil, identity{}, err
	}
	return f, id, nil
}

func identify(f *os.File) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return identity{}, refused(err)
	}
	return identity{uint64(st.Dev), uint64(st.Ino), st.Size, st.Mtim}, nil
}

// memory is the bytes of a whole file, mapped or copied, and read-only in either case. It lies
// outside the heap: a slice of it does not keep it, a pointer to the memory does (OPEN-12).
type memory struct {
	data    []byte
	mapped  bool
	cleanup runtime.Cleanup
}

// copied counts the bytes of copies that were not given back yet. The garbage collector does not see
// them, so it has to be asked where they become many.
var copied atomic.Int64

const manyCopied = 64 << 20

// newMemory maps or copies a file whose size has been checked (OPEN-4).
func newMemory(f *os.File, size int64, mode Mode) (*memory, error) {
	if size > math.MaxInt {
		return nil, refuse(TooLarge, "", "OPEN-9: %d bytes cannot be addressed here", size)
	}
	m := &memory{mapped: mode == Mmap}
	var err error
	if m.mapped {
		m.data, err = unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	} else {
		if copied.Load() > manyCopied {
			runtime.GC()
		}
		// Not the heap: where that runs out the runtime ends the process, and this only fails.
		m.data, err = unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	}
	if err != nil {
		return nil, refused(err)
	}
	if m.mapped {
		m.cleanup = runtime.AddCleanup(m, unmap, m.data)
		return m, nil
	}
	copied.Add(size)
	m.cleanup = runtime.AddCleanup(m, uncopy, m.data)
	// ReadAt tries again after an interruption and after a short read (OPEN-11).
	if _, err = f.ReadAt(m.data, 0); err == nil {
		err = unix.Mprotect(m.data, unix.PROT_READ)
	}
	if err != nil {
		m.release()
		return nil, refused(err)
	}
	return m, nil
}

func unmap(data []byte) { _ = unix.Munmap(data) }

func uncopy(data []byte) {
	copied.Add(-int64(len(data)))
	unmap(data)
}

// release gives the memory back at once. It is for files that are refused: nobody else can have a
// part of it yet.
func (m *memory) release() {
	m.cleanup.Stop()
	if m.mapped {
		unmap(m.data)
	} else {
		uncopy(m.data)
	}
	m.data = nil
}

// use lends the bytes to fn. A page that is gone because somebody cut the mapped file raises
// SIGBUS; Go can turn that into a panic, and this turns the panic into an error.
func (m *memory) use(fn func(data []byte) error) (err error) {
	defer runtime.KeepAlive(m)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		cause := recover()
		if fault, ok := cause.(interface{ Addr() uintptr }); ok {
			if at := fault.Addr() - address(m.data); at < uintptr(len(m.data)) {
				err = refuse(Truncated, "", "OPEN-11: byte %d of the file is no longer there", at)
				return
			}
		}
		if cause != nil {
			panic(cause) // not ours
		}
	}()
	return fn(m.data)
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
