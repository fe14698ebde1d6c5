//! Tensors inside the regions that TensorFlow's own allocator (BFC) holds.
//!
//! BFC takes large regions from the driver and cuts tensors out of them by itself, so the driver's functions never see a
//! tensor. But its allocating functions are virtual and exported: the slots of its function tables are filled by name,
//! and a preloaded library comes first. Each call goes on to the function of the library that the allocator's own table
//! lies in; what was cut out is written down.
//!
//! TensorFlow's tensors in host memory, page-locked or not, come from such allocators too. The large ones are written
//! down: what a step copies back and what an input pipeline keeps fill the host's memory, and nothing else names them.

use crate::alloc::{self, oom::situation};
use crate::attribute::{self, What};
use crate::driver::real::{self, done};
use crate::frameworks::tensorflow::{ForTensors, loaded};
use crate::process::{elf, guard, linker};
use crate::record::{self, oom};
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use weir_cuda::{CUmemorytype, CUpointer_attribute};
use weir_journal::layout::HOST_DEVICE;
use weir_journal::{Class, Granted, Intent, Kind, STREAM_UNKNOWN};

type Allocate = unsafe extern "C-unwind" fn(*mut c_void, usize, usize, *const bool) -> *mut c_void;
type Deallocate = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void);
type Size = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void) -> usize;

const ALLOCATE: &CStr = c"_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE";
const DEALLOCATE: &CStr = c"_ZN3tsl12BFCAllocator13DeallocateRawEPv";
/// Returns how large the chunk of a tensor is, which may be much larger than the tensor.
const SIZE: &CStr = c"_ZNK3tsl12BFCAllocator13AllocatedSizeEPKv";

/// `tsl::BFCAllocator::AllocateRaw(alignment, bytes, attributes)`; the attributes begin with whether to try again.
#[cfg_attr(not(test), unsafe(export_name = "_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE"))]
unsafe extern "C-unwind" fn allocate(
    allocator: *mut c_void,
    alignment: usize,
    bytes: usize,
    attributes: *const bool,
) -> *mut c_void {
    let real = real_of(allocator, Function::Allocate);
    if real == 0 {
        return core::ptr::null_mut();
    }
    let _for_tensors = ForTensors::begin();
    // SAFETY: the address is that of the real function of this name; the arguments are the caller's own.
    let tensor = unsafe { core::mem::transmute::<usize, Allocate>(real)(allocator, alignment, bytes, attributes) };
    if record::open().is_some() {
        // SAFETY: a reference of the caller's, whose first byte is a flag.
        let retried = unsafe { attributes.cast::<u8>().read() } != 0;
        guard::run("BFCAllocator::AllocateRaw", || allocated(allocator, bytes as u64, tensor as u64, retried));
    }
    tensor
}

/// `tsl::BFCAllocator::DeallocateRaw(pointer)`.
#[cfg_attr(not(test), unsafe(export_name = "_ZN3tsl12BFCAllocator13DeallocateRawEPv"))]
unsafe extern "C-unwind" fn deallocate(allocator: *mut c_void, tensor: *mut c_void) {
    // Most tensors in host memory are too small to be in the journal; often none is.
    let recorded = |place: &Location| *place != Location::Host || ON_HOST.load(Ordering::Relaxed) > 0;
    if let Some((recorder, place)) = record::open().zip(known_place(allocator).filter(recorded)) {
        guard::run("BFCAllocator::DeallocateRaw", || {
            recorder.journal.change_comes(tensor as u64, place.class());
            // Before the allocator can hand the address out again.
            let ticket = recorder.journal.begin_free(tensor as u64, place.class());
            if ticket.entry().is_some() {
                ticket.freed(STREAM_UNKNOWN);
                if place == Location::Host {
                    ON_HOST.fetch_sub(1, Ordering::Relaxed);
                }
            }
        });
    }
    let real = real_of(allocator, Function::Deallocate);
    if real != 0 {
        // SAFETY: as above.
        unsafe { core::mem::transmute::<usize, Deallocate>(real)(allocator, tensor) };
    }
}

fn allocated(allocator: *mut c_void, bytes: u64, tensor: u64, retried: bool) {
    let place = match (known_place(allocator), tensor) {
        (Some(place), _) => place,
        (None, 0) => return,
        (None, tensor) => match learn_place(allocator, tensor) {
            Some(place) => place,
            None => return,
        },
    };
    let Some(recorder) = record::open() else { return };
    let (device, what) = match place {
        Location::Device(ordinal) if tensor == 0 => {
            if retried && bytes > 0 {
                oom::report(recorder, ordinal, Class::Tensor, STREAM_UNKNOWN, bytes, situation);
            } else if bytes > 0 {
                oom::tried(recorder, ordinal, bytes);
            }
            return;
        }
        Location::Device(ordinal) => (record::device(ordinal), What::Hit(bytes, true)),
        Location::Host if tensor == 0 || bytes < LEAST_ON_HOST || !one_more_on_host() => return,
        Location::Host => {
            recorder.journal.sample_host(record::SAMPLE_MS);
            (HOST_DEVICE, What::OnHost)
        }
    };
    recorder.journal.change_comes(tensor, place.class());
    let wanted = Intent {
        kind: Kind::Alloc,
        class: place.class(),
        device,
        stream: STREAM_UNKNOWN,
        requested: bytes,
        address: tensor,
        by: attribute::here(&recorder.journal, what),
    };
    recorder
        .journal
        .pool_hit(&wanted, Granted { address: tensor, allocated: chunk_bytes(allocator, tensor, bytes, place) });
}

/// The bytes of the chunk that a tensor got.
fn chunk_bytes(allocator: *mut c_void, tensor: u64, bytes: u64, place: Location) -> u64 {
    let rounded = bytes.next_multiple_of(GRAIN);
    match real_of(allocator, Function::Size) {
        0 => rounded,
        _ if place == Location::Host => rounded,
        // SAFETY: the address is that of the real function of this name, and its caller does not have the tensor yet, so
        // nobody can have freed it. It locks what the allocation itself has locked and left.
        real => unsafe { core::mem::transmute::<usize, Size>(real)(allocator, tensor as *mut c_void) as u64 },
    }
}

/// Tensors in host memory below this are not recorded: there are many, and they are little together.
const LEAST_ON_HOST: u64 = 64 << 10;
/// Most of them at a time: the journal's table of what is live is for the device first.
const MOST_ON_HOST: usize = 1 << 15;
static ON_HOST: AtomicUsize = AtomicUsize::new(0);

fn one_more_on_host() -> bool {
    let more = |now| (now < MOST_ON_HOST).then_some(now + 1);
    ON_HOST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// BFC gives multiples of this.
const GRAIN: u64 = 256;

/// The functions of an allocator that are called here.
#[derive(Clone, Copy)]
enum Function {
    Allocate,
    Deallocate,
    /// May be missing.
    Size,
}

/// Function tables of allocators and the real functions of the library that each lies in.
static REALS: [[AtomicUsize; 4]; 8] = [const { [const { AtomicUsize::new(0) }; 4] }; 8];

/// The real function for an allocator; 0 is none.
#[inline]
fn real_of(allocator: *mut c_void, which: Function) -> usize {
    // SAFETY: an object with virtual functions begins with the address of their table.
    let table = unsafe { allocator.cast::<usize>().read() };
    for known in &REALS {
        if known[0].load(Ordering::Acquire) == table {
            return known.get(1 + which as usize).map_or(0, |real| real.load(Ordering::Relaxed));
        }
    }
    learn_real(table, which)
}

#[cold]
fn learn_real(table: usize, which: Function) -> usize {
    let home = elf::object_at(table).map(|(_, object)| object);
    let framework = loaded::find().map(|loaded| loaded.framework);
    let find = |name: &CStr, own: usize| {
        let in_home = home.and_then(|object| object.find(name));
        let elsewhere = || match framework.map_or(0, |handle| loaded::symbol(handle, name)) {
            0 => Some(linker::lookup(libc::RTLD_NEXT, name)),
            address => Some(address),
        };
        in_home.or_else(elsewhere).filter(|address| *address != own).unwrap_or(0)
    };
    let own = [allocate as *const () as usize, deallocate as *const () as usize];
    let found = [find(ALLOCATE, own[0]), find(DEALLOCATE, own[1]), find(SIZE, 0)];
    linker::clear_error();
    if found[0] != 0 && found[1] != 0 {
        for slot in &REALS {
            if slot[1].compare_exchange(0, found[0], Ordering::AcqRel, Ordering::Acquire).is_ok() {
                slot[2].store(found[1], Ordering::Relaxed);
                slot[3].store(found[2], Ordering::Relaxed);
                slot[0].store(table, Ordering::Release);
                break;
            }
        }
    }
    found.get(which as usize).copied().unwrap_or(0)
}

/// Where an allocator's memory is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Location {
    Host,
    Device(i32),
}

impl Location {
    fn class(self) -> Class {
        if self == Self::Host { Class::HostTensor } else { Class::Tensor }
    }

    /// As it is kept: 1 for the host, else 2 and the device.
    fn number(self) -> usize {
        match self {
            Self::Host => 1,
            Self::Device(ordinal) => ordinal as usize + 2,
        }
    }

    fn from_number(number: usize) -> Option<Self> {
        match number {
            0 => None,
            1 => Some(Self::Host),
            device => i32::try_from(device - 2).ok().map(Self::Device),
        }
    }
}

/// Allocators and their places.
static PLACES: [[AtomicUsize; 2]; 64] = [const { [const { AtomicUsize::new(0) }; 2] }; 64];

/// The place of an allocator, if it is known.
#[inline]
fn known_place(allocator: *mut c_void) -> Option<Location> {
    for place in &PLACES {
        match place[0].load(Ordering::Acquire) {
            0 => return None,
            known if known == allocator as usize => return Location::from_number(place[1].load(Ordering::Relaxed)),
            _ => {}
        }
    }
    None
}

#[cold]
fn learn_place(allocator: *mut c_void, tensor: u64) -> Option<Location> {
    let found = device_of(tensor).map_or(Location::Host, Location::Device);
    for place in &PLACES {
        // The second word first: who sees the allocator sees its place.
        if place[1].compare_exchange(0, found.number(), Ordering::AcqRel, Ordering::Acquire).is_ok() {
            place[0].store(allocator as usize, Ordering::Release);
            return Some(found);
        }
    }
    None
}

/// The device that an address is on; `None` for memory of the host.
fn device_of(address: u64) -> Option<i32> {
    if let Some(device_pool) = alloc::owner(address) {
        return Some(device_pool.ordinal);
    }
    let ask = |attribute, value: &mut u32| {
        // SAFETY: both attributes are numbers of four bytes, and the place is a live one.
        done(unsafe { real::cuPointerGetAttribute((&raw mut *value).cast(), attribute, address) }).is_ok()
    };
    let (mut kind, mut ordinal) = (0, 0);
    let on_device = ask(CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, &mut kind)
        && kind == CUmemorytype::CU_MEMORYTYPE_DEVICE.0
        && ask(CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, &mut ordinal);
    on_device.then_some(ordinal as i32)
}
