//! The seam between Python and the decoder: buffers of records in, buffers of columns out.
#![deny(unsafe_code)]

use std::os::raw::c_int;
use std::slice;

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

mod decoder;

/// The vector of a column, which Python reads through the buffer protocol. It does not change.
#[pyclass(frozen)]
struct Vector(Numbers);

enum Numbers {
    Bytes(Vec<u8>),
    Ints(Vec<i32>),
    Longs(Vec<i64>),
}

#[pymethods]
impl Vector {
    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(this: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (start, bytes) = match &this.get().0 {
            Numbers::Bytes(vector) => (vector.as_ptr().cast(), vector.len()),
            Numbers::Ints(vector) => (vector.as_ptr().cast(), size_of_val(vector.as_slice())),
            Numbers::Longs(vector) => (vector.as_ptr().cast(), size_of_val(vector.as_slice())),
        };
        let start: *const std::ffi::c_void = start;
        // SAFETY: the view keeps this object, which keeps its vector unchanged; the view is read-only.
        match unsafe { ffi::PyBuffer_FillInfo(view, this.as_ptr(), start.cast_mut(), bytes as isize, 1, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(this.py())),
        }
    }
}

/// The records, first offset, offset after the last, queue id, whether each offset has to have a message, and whether
/// records may be batches.
type Pull = (PyBuffer<u8>, i64, i64, i32, bool, bool);

/// Returns the columns of the messages by name, or None for records that it leaves to pyrmq's own decoder.
///
/// The records may not change while it runs.
#[pyfunction(name = "decode")]
fn decode_pulls<'py>(
    py: Python<'py>,
    pulls: Vec<Pull>,
    system_names: Vec<Vec<u8>>,
    verify_crc: bool,
    want_body: bool,
    want_properties: bool,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    let inputs = pulls.iter().map(as_input).collect::<PyResult<Vec<_>>>()?;
    let wants =
        decoder::Wants { crc: verify_crc, body: want_body, properties: want_properties, system_names: &system_names };
    py.detach(|| decoder::decode(&inputs, &wants)).map(|columns| as_dict(py, columns)).transpose()
}

#[allow(unsafe_code)]
fn as_input((buffer, first, last, queue_id, is_dense, allows_batches): &Pull) -> PyResult<decoder::Pull<'_>> {
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the records are not contiguous"));
    }
    let records = match buffer.len_bytes() {
        0 => &[],
        // SAFETY: the buffer lives as long as the slice, and its owner does not write to records that it lent.
        bytes => unsafe { slice::from_raw_parts(buffer.buf_ptr() as *const u8, bytes) },
    };
    Ok(decoder::Pull {
        records,
        first: *first,
        last: *last,
        queue_id: *queue_id,
        is_dense: *is_dense,
        allows_batches: *allows_batches,
    })
}

fn as_dict(py: Python<'_>, columns: decoder::Columns) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("rows", columns.queue_offset.len())?;
    out.set_item("topic", columns.topic)?;
    out.set_item("queueId", Vector(Numbers::Ints(columns.queue_id)))?;
    out.set_item("queueOffset", Vector(Numbers::Longs(columns.queue_offset)))?;
    out.set_item("bornTimestamp", Vector(Numbers::Longs(columns.born_us)))?;
    out.set_item("storeTimestamp", Vector(Numbers::Longs(columns.store_us)))?;
    out.set_item("reconsumeTimes", Vector(Numbers::Ints(columns.reconsume_times)))?;
    out.set_item("pairs", Vector(Numbers::Ints(columns.pair_bounds)))?;
    for (name, texts) in [
        ("msgId", columns.msg_id),
        ("tags", columns.tags),
        ("keys", columns.keys),
        ("body", columns.body),
        ("names", columns.names),
        ("values", columns.values),
    ] {
        let valid = (texts.nulls > 0).then_some(Vector(Numbers::Bytes(texts.valid)));
        let (bounds, octets) = (Vector(Numbers::Ints(texts.bounds)), Vector(Numbers::Bytes(texts.octets)));
        out.set_item(name, (valid, bounds, octets))?;
    }
    Ok(out)
}

#[pymodule]
fn pyrmq_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(decode_pulls, module)?)
}
