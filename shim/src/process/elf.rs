//! The dynamic symbol tables of what is loaded, read without `dlsym`.
//!
//! Both `dlsym` and `dlvsym` are exported by this library, so neither can be called to find the real
//! ones are. This walks the loaded objects' own tables instead. It reads mapped memory only: no
//! allocation, no file, no lock but the dynamic linker's own, and it works before any initialiser.

use core::ffi::{CStr, c_char, c_int, c_void};

const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
/// Set in a symbol's version when it is not the default one of its name.
const HIDDEN: u16 = 0x8000;

#[repr(C)]
#[derive(Clone, Copy)]
struct Dyn {
    tag: i64,
    value: usize,
}

/// One loaded object: the program or a shared library.
#[derive(Clone, Copy)]
pub(crate) struct Object {
    /// What its addresses are relative to.
    base: usize,
    /// Where its first segment begins, and its last one ends.
    start: usize,
    end: usize,
    dynamic: *const Dyn,
    name: *const c_char,
}

/// Calls `visit` for each loaded object in load order, until it answers true.
pub(crate) fn each_object(visit: &mut dyn FnMut(&Object) -> bool) {
    struct Visitor<'a>(&'a mut dyn FnMut(&Object) -> bool);
    unsafe extern "C" fn step(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
        // SAFETY: dl_iterate_phdr passes a valid info and the visitor given below, alone.
        let (info, visitor) = unsafe { (&*info, &mut *data.cast::<Visitor>()) };
        let mut object = Object {
            base: info.dlpi_addr as usize,
            start: usize::MAX,
            end: 0,
            dynamic: core::ptr::null(),
            name: info.dlpi_name,
        };
        for i in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: dlpi_phdr points to dlpi_phnum headers.
            let header = unsafe { &*info.dlpi_phdr.add(i) };
            let start = object.base + header.p_vaddr as usize;
            match header.p_type {
                libc::PT_DYNAMIC => object.dynamic = start as *const Dyn,
                libc::PT_LOAD => {
                    object.start = object.start.min(start);
                    object.end = object.end.max(start + header.p_memsz as usize);
                }
                _ => {}
            }
        }
        c_int::from((visitor.0)(&object))
    }
    let mut visitor = Visitor(visit);
    // SAFETY: `step` keeps to the contract of the callback and `visitor` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(step), (&raw mut visitor).cast()) };
}

/// The object that `address` lies in, and its place in the load order.
pub(crate) fn object_at(address: usize) -> Option<(usize, Object)> {
    let mut place = 0;
    let mut found = None;
    each_object(&mut |object| {
        if object.contains(address) {
            found = Some((place, *object));
        }
        place += 1;
        found.is_some()
    });
    found
}

impl Object {
    /// Whether `address` lies in the object's mapped segments.
    pub(crate) fn contains(&self, address: usize) -> bool {
        // Objects are contiguous reservations. What they are relative to says nothing: it is 0 for a program that is not
        // position-independent, and for the vDSO of an emulated processor, which lies among the libraries.
        (self.start..self.end).contains(&address)
    }

    /// The path it was loaded from; empty for the program itself.
    pub(crate) fn path(&self) -> &CStr {
        if self.name.is_null() {
            return c"";
        }
        // SAFETY: the dynamic linker keeps the name as long as the object.
        unsafe { CStr::from_ptr(self.name) }
    }

    fn entry(&self, tag: i64) -> Option<usize> {
        if self.dynamic.is_null() {
            return None;
        }
        let mut at = self.dynamic;
        // SAFETY: the dynamic section ends with a null tag.
        unsafe {
            while (*at).tag != 0 {
                if (*at).tag == tag {
                    return Some((*at).value);
                }
                at = at.add(1);
            }
        }
        None
    }

    /// The address an entry points to: glibc has added the base already, for the vDSO nobody has.
    fn table(&self, tag: i64) -> Option<usize> {
        let value = self.entry(tag)?;
        Some(if value < self.base { value + self.base } else { value })
    }

    /// The library's own name, such as `libc.so.6`.
    pub(crate) fn soname(&self) -> Option<&CStr> {
        let strings = self.table(DT_STRTAB)?;
        let offset = self.entry(DT_SONAME)?;
        // SAFETY: DT_SONAME is an offset into the string table.
        Some(unsafe { CStr::from_ptr((strings + offset) as *const c_char) })
    }

    /// How many symbols the table has: from the old hash table, or the end of the new one's last chain.
    fn symbol_count(&self) -> usize {
        // SAFETY: the layouts of both tables are fixed by the ELF gABI and by glibc; the linker
        // itself walks them so.
        unsafe {
            if let Some(hash) = self.table(DT_HASH) {
                return *(hash as *const u32).add(1) as usize;
            }
            let Some(table) = self.table(DT_GNU_HASH) else {
                return 0;
            };
            let words = table as *const u32;
            let (buckets, first, bloom) = (*words, *words.add(1), *words.add(2));
            let bucket = words.add(4 + bloom as usize * (size_of::<usize>() / 4));
            let chain = bucket.add(buckets as usize);
            let last = (0..buckets as usize).map(|i| *bucket.add(i)).max().unwrap_or(0);
            if last < first {
                return first as usize;
            }
            let mut last = last as usize;
            while *chain.add(last - first as usize) & 1 == 0 {
                last += 1;
            }
            last + 1
        }
    }

    /// Calls `visit` with name, address and whether it is the default version of each defined symbol.
    pub(crate) fn each_symbol(&self, visit: &mut dyn FnMut(&CStr, usize, bool)) {
        let (Some(strings), Some(symbols)) = (self.table(DT_STRTAB), self.table(DT_SYMTAB)) else {
            return;
        };
        let versions = self.table(DT_VERSYM);
        for i in 1..self.symbol_count() {
            // SAFETY: i is below the table's size, names are offsets into the string table, and a
            // version table has an entry for each symbol.
            unsafe {
                let symbol = &*(symbols as *const libc::Elf64_Sym).add(i);
                if symbol.st_shndx == 0 || symbol.st_value == 0 {
                    continue;
                }
                let name = CStr::from_ptr((strings + symbol.st_name as usize) as *const c_char);
                let default = versions.is_none_or(|v| *(v as *const u16).add(i) & HIDDEN == 0);
                visit(name, self.base + symbol.st_value as usize, default);
            }
        }
    }

    /// Where the object defines `name`: its default version, else any.
    pub(crate) fn find(&self, name: &CStr) -> Option<usize> {
        let mut found = None;
        self.each_symbol(&mut |symbol, address, default| {
            if symbol == name && (default || found.is_none()) {
                found = Some(address);
            }
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn libc_object() -> Object {
        let mut found = None;
        each_object(&mut |o| {
            if o.soname() == Some(c"libc.so.6") {
                found = Some(*o);
            }
            found.is_some()
        });
        found.unwrap_or_else(|| unreachable!("a Rust test is linked with libc"))
    }

    #[test]
    fn finds_in_libc_what_the_linker_finds() {
        for name in [c"dlsym", c"dlvsym", c"malloc", c"qsort", c"dl_iterate_phdr"] {
            // SAFETY: dlsym is libc's own in a test binary.
            let linker = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
            assert_eq!(libc_object().find(name), Some(linker), "{name:?}");
        }
        assert_eq!(libc_object().find(c"no_such_function"), None);
    }

    #[test]
    fn an_address_belongs_to_its_object() {
        let (place, object) = object_at(tests::libc_object as *const () as usize)
            .unwrap_or_else(|| unreachable!("this function is loaded"));
        assert_eq!((place, object.path()), (0, c""));
        let libc = libc_object();
        let malloc = libc.find(c"malloc").unwrap_or(0);
        assert!(libc.contains(malloc) && !object.contains(malloc));
    }

    #[test]
    fn an_object_begins_with_its_first_segment() {
        // QEMU's vDSO is relative to 0.
        let vdso = Object { base: 0, start: 0x7000, end: 0x9000, dynamic: core::ptr::null(), name: core::ptr::null() };
        assert!(vdso.contains(0x7000) && !vdso.contains(0x6fff) && !vdso.contains(0x9000));
    }
}
