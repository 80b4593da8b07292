/* A base class that lets a Python class export a buffer before Python 3.12 (PEP 688).
 *
 * `Exporter` asks its subclass for a memoryview through the method `__buffer__(flags)`, the very
 * name and signature of PEP 688, and gives out the same bytes with itself as their owner. The
 * memoryview's own buffer must not be handed on: where a cycle of garbage holds a buffer whose
 * owner is a memoryview, Python's collector may clear that memoryview first, and then dies when the
 * buffer is released. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

/* The buffer of the memoryview is held in view->internal as long as ours is out. */
static int exporter_getbuffer(PyObject *self, Py_buffer *view, int flags) {
    view->obj = NULL;
    Py_buffer *held = PyMem_Malloc(sizeof *held);
    if (held == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    PyObject *source = PyObject_CallMethod(self, "__buffer__", "i", flags);
    const int result = source == NULL ? -1 : PyObject_GetBuffer(source, held, flags);
    Py_XDECREF(source);
    if (result < 0) {
        PyMem_Free(held);
        return -1;
    }
    *view = *held;
    view->obj = Py_NewRef(self);
    view->internal = held;
    return 0;
}

static void exporter_releasebuffer(PyObject *self, Py_buffer *view) {
    (void)self;
    PyBuffer_Release(view->internal);
    PyMem_Free(view->internal);
}

static PyType_Slot exporter_slots[] = {
    {Py_tp_doc, "Base of classes that give a memoryview by __buffer__(flags)."},
    {Py_bf_getbuffer, (void *)exporter_getbuffer},
    {Py_bf_releasebuffer, (void *)exporter_releasebuffer},
    {0, NULL},
};

static PyType_Spec exporter_spec = {
    .name = "weig.backends._buffer.Exporter",
    .basicsize = sizeof(PyObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = exporter_slots,
};

/* dlpack_capsule(address, deleter, versioned): a capsule of a DLManagedTensor. Its destructor runs
 * while an exception of the consumer may be on its way, which a destructor in Python would drop. */
static const char taken_mark[] = "used_";
static const char *const capsule_names[] = {"dltensor", "dltensor_versioned"};

static void capsule_destructor(PyObject *capsule) {
    const char *name = PyCapsule_GetName(capsule);
    /* A consumer that took the tensor renamed the capsule, and calls the deleter itself. */
    if (name == NULL || strncmp(name, taken_mark, sizeof taken_mark - 1) == 0)
        return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    void (*deleter)(void *) = (void (*)(void *))(uintptr_t)PyCapsule_GetContext(capsule);
    deleter(PyCapsule_GetPointer(capsule, name));
    PyErr_Restore(type, value, trace);
}

static PyObject *dlpack_capsule(PyObject *module, PyObject *args) {
    (void)module;
    unsigned long long address, deleter;
    int versioned;
    if (!PyArg_ParseTuple(args, "KKp:dlpack_capsule", &address, &deleter, &versioned))
        return NULL;
    PyObject *capsule =
        PyCapsule_New((void *)(uintptr_t)address, capsule_names[versioned], capsule_destructor);
    if (capsule != NULL && PyCapsule_SetContext(capsule, (void *)(uintptr_t)deleter) != 0)
        Py_CLEAR(capsule);
    return capsule;
}

static PyMethodDef buffer_methods[] = {
    {"dlpack_capsule", dlpack_capsule, METH_VARARGS, "A capsule of a DLManagedTensor."},
    {NULL, NULL, 0, NULL},
};

static int buffer_exec(PyObject *module) {
    PyObject *type = PyType_FromSpec(&exporter_spec);
    if (type == NULL)
        return -1;
    int result = PyModule_AddObjectRef(module, "Exporter", type);
    Py_DECREF(type);
    return result;
}

static PyModuleDef_Slot buffer_slots[] = {
    {Py_mod_exec, (void *)buffer_exec},
    {0, NULL},
};

static PyModuleDef buffer_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_buffer",
    .m_methods = buffer_methods,
    .m_slots = buffer_slots,
};

PyMODINIT_FUNC PyInit__buffer(void) {
    return PyModuleDef_Init(&buffer_module);
}
