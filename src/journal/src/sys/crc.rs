//! CRC32C of eight words with the processor's own instruction: the general routine costs more than the rest of a
//! record. Falls back to it where there is no such instruction.

/// By the instruction itself: a function that the compiler may use it in could not be inlined, and the words of a record
/// would go through memory twice.
///
/// # Safety
/// The processor must have SSE 4.2.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn by_instruction(words: &[u64; 8]) -> u32 {
    let mut crc = 0xffff_ffff_u64;
    // SAFETY: registers only; the caller vouches for the instruction.
    unsafe {
        std::arch::asm!(
            "crc32 {crc}, {a}", "crc32 {crc}, {b}", "crc32 {crc}, {c}", "crc32 {crc}, {d}",
            crc = inout(reg) crc, a = in(reg) words[0], b = in(reg) words[1], c = in(reg) words[2], d = in(reg) words[3],
            options(pure, nomem, nostack, preserves_flags)
        );
        std::arch::asm!(
            "crc32 {crc}, {a}", "crc32 {crc}, {b}", "crc32 {crc}, {c}", "crc32 {crc}, {d}",
            crc = inout(reg) crc, a = in(reg) words[4], b = in(reg) words[5], c = in(reg) words[6], d = in(reg) words[7],
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    !(crc as u32)
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "crc")]
fn by_instruction(words: &[u64; 8]) -> u32 {
    use std::arch::aarch64::__crc32cd;
    let mut crc = 0xffff_ffff;
    for word in words {
        crc = __crc32cd(crc, *word);
    }
    !crc
}

/// CRC32C of eight words, each in little-endian order.
#[inline]
pub(crate) fn crc_record(words: &[u64; 8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { by_instruction(words) };
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("crc") {
        // SAFETY: the processor has the instruction.
        return unsafe { by_instruction(words) };
    }
    by_table(words)
}

fn by_table(words: &[u64; 8]) -> u32 {
    let mut bytes = [0_u8; 64];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    crc32c::crc32c(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_agree() {
        let mut words = [0x0123_4567_89ab_cdef_u64; 8];
        for round in 0..1000_u64 {
            words[round as usize % 8] = words[0].wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ round;
            assert_eq!(crc_record(&words), by_table(&words));
        }
    }
}
