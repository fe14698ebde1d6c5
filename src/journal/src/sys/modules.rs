//! The modules loaded into this process, as the dynamic loader lists them: where they lie, their build ids, and where
//! their unwinding tables are. No symbol is looked at.

use std::ffi::CStr;

/// One loaded module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    /// Path; of the executable too.
    pub(crate) path: String,
    /// Difference between addresses in memory and in the file.
    pub(crate) bias: u64,
    /// First mapped address.
    pub(crate) start: u64,
    /// From the first to the last mapped byte.
    pub(crate) size: u64,
    /// Build id, empty when it has none.
    pub(crate) build_id: Vec<u8>,
    /// The executable part: first address and size.
    pub(crate) text: (u64, u64),
    /// The .eh_frame_hdr section: address and size.
    pub(crate) eh_frame_hdr: (u64, u64),
    /// The loadable segment that holds .eh_frame_hdr: address and size.
    pub(crate) eh_segment: (u64, u64),
}

/// Lists the loaded modules. Takes the loader's lock and allocates.
pub(crate) fn loaded() -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::with_capacity(256);
    // SAFETY: the callback gets the address of `modules`, which outlives the call, and never unwinds.
    unsafe { libc::dl_iterate_phdr(Some(note_module), (&raw mut modules).cast()) };
    if let Some(first) = modules.first_mut()
        && first.path.is_empty()
    {
        first.path = std::fs::read_link("/proc/self/exe").unwrap_or_default().to_string_lossy().into_owned();
    }
    modules
}

/// How often modules were loaded and unloaded so far: when this has not changed, neither has the list.
pub(crate) fn generation() -> u64 {
    let mut count = 0_u64;
    // SAFETY: the callback gets the address of `count`, which outlives the call, and never unwinds.
    unsafe { libc::dl_iterate_phdr(Some(note_generation), (&raw mut count).cast()) };
    count
}

unsafe extern "C" fn note_generation(info: *mut libc::dl_phdr_info, _: usize, to: *mut libc::c_void) -> i32 {
    // SAFETY: the loader passes a valid record, and `generation` passed the address of a u64.
    unsafe { *to.cast::<u64>() = (*info).dlpi_adds.wrapping_add((*info).dlpi_subs) };
    1
}

unsafe extern "C" fn note_module(info: *mut libc::dl_phdr_info, _: usize, to: *mut libc::c_void) -> i32 {
    // SAFETY: the loader passes a valid record for the duration of the call, and `loaded` passed the address of a Vec
    // that nobody else uses meanwhile.
    let (info, modules) = unsafe { (&*info, &mut *to.cast::<Vec<Module>>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the loader keeps `dlpi_phnum` program headers there while the module is loaded.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let path = if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: the loader's names are NUL-terminated.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
    };
    let mut module = Module {
        path,
        bias: info.dlpi_addr,
        start: u64::MAX,
        size: 0,
        build_id: Vec::new(),
        text: (0, 0),
        eh_frame_hdr: (0, 0),
        eh_segment: (0, 0),
    };
    let mut end = 0;
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        module.start = module.start.min(start);
        end = end.max(start.wrapping_add(header.p_memsz));
        if header.p_flags & libc::PF_X != 0 && module.text.1 == 0 {
            module.text = (start, header.p_memsz);
        }
    }
    if module.start >= end {
        return 0;
    }
    module.size = end - module.start;
    for header in headers {
        let at = info.dlpi_addr.wrapping_add(header.p_vaddr);
        if header.p_type == libc::PT_NOTE && at >= module.start && at.saturating_add(header.p_memsz) <= end {
            // SAFETY: the note segment lies inside the module's loaded, readable memory.
            let notes = unsafe { std::slice::from_raw_parts(at as *const u8, header.p_memsz as usize) };
            if let Some(id) = build_id(notes) {
                module.build_id = id.to_vec();
            }
        } else if header.p_type == libc::PT_GNU_EH_FRAME {
            module.eh_frame_hdr = (at, header.p_memsz);
            for load in headers.iter().filter(|load| load.p_type == libc::PT_LOAD && load.p_flags & libc::PF_R != 0) {
                let start = info.dlpi_addr.wrapping_add(load.p_vaddr);
                if at >= start && at.saturating_add(header.p_memsz) <= start.saturating_add(load.p_filesz) {
                    module.eh_segment = (start, load.p_filesz);
                }
            }
        }
    }
    modules.push(module);
    0
}

/// The GNU build id among ELF notes.
fn build_id(mut notes: &[u8]) -> Option<&[u8]> {
    const GNU_BUILD_ID: u32 = 3;
    let number = |at: &[u8]| at.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes));
    loop {
        let (name, length, kind) = (number(notes)?, number(notes.get(4..)?)?, number(notes.get(8..)?)?);
        let name_end = 12_usize.checked_add((name as usize).checked_next_multiple_of(4)?)?;
        let id_end = name_end.checked_add(length as usize)?;
        if kind == GNU_BUILD_ID && notes.get(12..12 + name as usize)? == b"GNU\0" {
            return notes.get(name_end..id_end);
        }
        notes = notes.get(name_end.checked_add((length as usize).checked_next_multiple_of(4)?)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_and_libc_are_listed() {
        let modules = loaded();
        let here = this_program_and_libc_are_listed as *const () as u64;
        let own = modules.iter().find(|module| here >= module.start && here - module.start < module.size).unwrap();
        assert!(own.path.contains("weir_journal"), "{}", own.path);
        assert!(here >= own.text.0 && here - own.text.0 < own.text.1);
        let libc = modules.iter().find(|module| module.path.contains("libc.so")).unwrap();
        assert!(libc.build_id.len() >= 16 && libc.eh_segment.1 > 0);
        assert_eq!(generation(), generation());
    }

    #[test]
    fn odd_notes_are_refused() {
        assert_eq!(build_id(&[]), None);
        assert_eq!(build_id(&[255; 40]), None);
        let mut notes = vec![4, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0];
        notes.extend(b"GNU\0\xab\xcd\0\0");
        assert_eq!(build_id(&notes), Some(&[0xab, 0xcd][..]));
        notes.truncate(17);
        assert_eq!(build_id(&notes), None);
    }
}
