//! CUPTI: clocks and numbers. There is no activity to report.

use crate::answers::put;
use core::ffi::{c_char, c_uint, c_void};
use std::ptr::null_mut;

const VERSION: c_uint = 23;
/// The end of a list of records.
const MAX_LIMIT_REACHED: c_uint = 12;

library! {
    /// The version of the interface.
    fn cuptiGetVersion(version: *mut c_uint) { put(version, VERSION); }
    /// The time, in nanoseconds.
    fn cuptiGetTimestamp(time: *mut u64) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        put(time, now.map_or(0, |since| since.as_nanos() as u64));
    }
    /// What a status means.
    fn cuptiGetResultString(status: c_uint, text: *mut *const c_char) {
        put(text, if status == 0 { c"no error" } else { c"CUPTI failure" }.as_ptr());
    }
    /// The same in more words.
    fn cuptiGetErrorMessage(status: c_uint, text: *mut *const c_char) {
        put(text, if status == 0 { c"no error" } else { c"CUPTI failure" }.as_ptr());
    }
    /// The next record of a buffer: there is none.
    fn cuptiActivityGetNextRecord(_buffer: *mut u8, _size: usize, record: *mut *mut c_void) {
        put(record, null_mut());
        return Err(MAX_LIMIT_REACHED);
    }
    /// How many records were lost.
    fn cuptiActivityGetNumDroppedRecords(_context: *mut c_void, _stream: c_uint, dropped: *mut usize) { put(dropped, 0); }
    /// A stream's number.
    fn cuptiGetStreamIdEx(_context: *mut c_void, stream: *mut c_void, _per_thread: u8, id: *mut c_uint) {
        put(id, stream as usize as c_uint);
    }
    /// A context's number.
    fn cuptiGetContextId(context: *mut c_void, id: *mut c_uint) { put(id, context as usize as c_uint); }
    /// The device of a context, as far as a caller without devices in its records needs one.
    fn cuptiGetDeviceId(_context: *mut c_void, id: *mut c_uint) { put(id, 0); }
    /// A graph's number.
    fn cuptiGetGraphId(graph: *mut c_void, id: *mut c_uint) { put(id, graph as usize as c_uint); }
    /// A node's number.
    fn cuptiGetGraphNodeId(node: *mut c_void, id: *mut u64) { put(id, node as u64); }
}
