//! What the options of the JIT compiler get back: logs and times. Nothing is compiled, so that only
//! a text that cannot be read has something to say.

use super::given;
use crate::error::*;
use weir_cuda::*;

/// Options that come as two lists of one length.
pub(super) struct JitOptions {
    count: usize,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
}

impl JitOptions {
    /// Options come with their values.
    pub(super) fn new(count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void) -> R<Self> {
        if count > 0 {
            given(options)?;
            given(values)?;
        }
        Ok(Self { count: count as usize, options, values })
    }

    /// Where the value of an option is.
    ///
    /// # Safety
    /// Both lists are as long as the caller said.
    unsafe fn place(&self, option: CUjit_option) -> Option<*mut *mut c_void> {
        // SAFETY: as promised.
        let at = (0..self.count).find(|&at| unsafe { self.options.add(at).read() } == option)?;
        // SAFETY: as promised.
        Some(unsafe { self.values.add(at) })
    }

    /// Writes a log into the buffer of one option and its length over the size in another.
    ///
    /// # Safety
    /// Both lists are as long as the caller said, and the buffer as long as its size says.
    unsafe fn log(&self, buffer: CUjit_option, size: CUjit_option, text: &str) {
        // SAFETY: as promised.
        let (buffer, size) = unsafe { (self.place(buffer), self.place(size)) };
        let Some(size) = size else { return };
        // SAFETY: a place in the caller's list. The value is the size itself, a 32-bit one.
        let room = unsafe { size.cast::<c_uint>().read() } as usize;
        let mut written = 0;
        if let Some(buffer) = buffer {
            // SAFETY: a place in the caller's list.
            let buffer = unsafe { buffer.read() }.cast::<u8>();
            if !buffer.is_null() && room > 0 {
                written = text.len().min(room - 1);
                // SAFETY: the caller's buffer has room for so much and a NUL.
                unsafe {
                    buffer.copy_from_nonoverlapping(text.as_ptr(), written);
                    buffer.add(written).write(0);
                }
            }
        }
        // SAFETY: as above.
        unsafe { size.cast::<c_uint>().write(written as c_uint) };
    }

    /// Answers the options that are answers, whatever became of the image.
    ///
    /// # Safety
    /// As for [`JitOptions::log`].
    pub(super) unsafe fn answer<T>(&self, result: &R<T>) {
        type J = CUjit_option;
        let invalid = matches!(result, Err(CUresult::CUDA_ERROR_INVALID_PTX));
        let error =
            if invalid { "vgpu: the text is not PTX, or its entries or variables cannot be read\n" } else { "" };
        // SAFETY: as promised.
        unsafe {
            self.log(J::CU_JIT_INFO_LOG_BUFFER, J::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, "");
            self.log(J::CU_JIT_ERROR_LOG_BUFFER, J::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, error);
            if let Some(time) = self.place(J::CU_JIT_WALL_TIME) {
                time.cast::<f32>().write(0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_reported_as_far_as_there_is_room() {
        type J = CUjit_option;
        let mut buffer = [0xffu8; 16];
        let mut options = [J::CU_JIT_WALL_TIME, J::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, J::CU_JIT_ERROR_LOG_BUFFER];
        let mut values: [*mut c_void; 3] =
            [std::ptr::without_provenance_mut(9), std::ptr::without_provenance_mut(8), buffer.as_mut_ptr().cast()];
        let jit = JitOptions::new(3, options.as_mut_ptr(), values.as_mut_ptr()).unwrap();
        // SAFETY: lists of three, and a buffer of more than eight bytes.
        unsafe { jit.answer::<()>(&Err(CUresult::CUDA_ERROR_INVALID_PTX)) };
        assert_eq!((values[0] as usize, values[1] as usize), (0, 7));
        assert_eq!(&buffer[..9], b"vgpu: t\0\xff");
        // SAFETY: as above.
        unsafe { jit.answer(&Ok(())) };
        assert_eq!((values[1] as usize, buffer[0]), (0, 0));
        assert!(JitOptions::new(1, std::ptr::null_mut(), values.as_mut_ptr()).is_err());
        assert!(JitOptions::new(0, std::ptr::null_mut(), std::ptr::null_mut()).is_ok());
    }
}
