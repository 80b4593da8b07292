/* A base class that lets a Python class export a buffer before Python 3.12 (PEP 688).
 *
 * `Exporter` asks its subclass for a memoryview through the method `__buffer__(flags)`, the very name and
 * signature of PEP 688, and hands that view's buffer on. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static int exporter_getbuffer(PyObject *self, Py_buffer *view, int flags) {
    PyObject *source = PyObject_CallMethod(self, "__buffer__", "i", flags);
    if (source == NULL) {
        view->obj = NULL;
        return -1;
    }
    /* The view now holds `source`, so our own reference can go. */
    int result = PyObject_GetBuffer(source, view, flags);
    Py_DECREF(source);
    return result;
}

static PyType_Slot exporter_slots[] = {
    {Py_tp_doc, "Base of classes that give a memoryview by __buffer__(flags)."},
    {Py_bf_getbuffer, (void *)exporter_getbuffer},
    {0, NULL},
};

static PyType_Spec exporter_spec = {
    .name = "weig.backends._buffer.Exporter",
    .basicsize = sizeof(PyObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = exporter_slots,
};

static int buffer_exec(PyObject *module) {
    PyObject *type = PyType_FromSpec(&exporter_spec);
    if (type == NULL) return -1;
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
    .m_slots = buffer_slots,
};

PyMODINIT_FUNC PyInit__buffer(void) { return PyModuleDef_Init(&buffer_module); }
