//! Taking and giving memory: plain, managed and stream-ordered blocks, arrays, handles and mempools.

use crate::actor::{Actor, Block, FD, GROWTH, Held, PAGE, grant, pool_properties, properties, rounded};
use crate::driver::cu::*;
use crate::op::{Op, What};
use std::ptr::null_mut;
use weir_cuda::*;

impl Actor {
    fn empty(&self, slot: u8) -> Option<usize> {
        (0..self.blocks.len()).map(|d| (slot as usize + d) % self.blocks.len()).find(|at| self.blocks[*at].is_none())
    }

    pub(crate) fn find(&self, slot: u8, wanted: impl Fn(&Block) -> bool) -> Option<usize> {
        let near = (0..self.blocks.len()).map(|d| (slot as usize + d) % self.blocks.len());
        near.into_iter().find(|at| self.blocks[*at].as_ref().is_some_and(&wanted))
    }

    fn keep(&mut self, slot: usize, held: Held, bytes: u64, most: u64, stream: usize) -> bool {
        self.blocks[slot] = Some(Block { held, bytes, most, ctx: self.current, stream, lent: false });
        true
    }

    pub(crate) fn allocate(&mut self, op: Op) -> bool {
        let Some(slot) = self.empty(op.slot) else { return false };
        let (bytes, mut ptr, home) = (op.bytes, 0, op.stream as usize);
        let plain = rounded(bytes) + 2 * PAGE;
        let ordered = rounded(bytes).max(GROWTH);
        if matches!(op.what, What::AllocAsync | What::AllocFromPool) {
            self.segment = self.segment.max(ordered);
        }
        if self.world.fragments {
            // By rows it is up to 1536 bytes for each 1500.
            self.segment = self.segment.max((bytes + bytes / 32).next_multiple_of(GROWTH) + GROWTH);
        }
        match op.what {
            What::Alloc => {
                self.taken("cuMemAlloc", cuMemAlloc_v2(&raw mut ptr, bytes as usize), plain)
                    && self.keep(slot, Held::Plain(ptr), bytes, plain, home)
            }
            What::AllocPitch => {
                let (width, rows) = ((bytes as usize).min(1500), (bytes as usize).div_ceil(1500));
                let (mut pitch, most) = (0, rounded(rows as u64 * 1536) + 2 * PAGE);
                let code = cuMemAllocPitch_v2(&raw mut ptr, &raw mut pitch, width, rows, 4);
                self.taken("cuMemAllocPitch", code, most)
                    && self.keep(slot, Held::Plain(ptr), (width * rows) as u64, most, home)
            }
            What::AllocManaged => {
                let code = cuMemAllocManaged(&raw mut ptr, bytes as usize, 1);
                self.taken("cuMemAllocManaged", code, plain) && self.keep(slot, Held::Managed(ptr), bytes, plain, home)
            }
            What::AllocAsync => {
                let stream = self.stream(self.current, home);
                let code = cuMemAllocAsync(&raw mut ptr, bytes as usize, stream);
                self.taken("cuMemAllocAsync", code, ordered)
                    && self.keep(slot, Held::Ordered(ptr), bytes, ordered, home)
            }
            _ => {
                let Some(pool) = self.pools[op.other as usize % self.pools.len()] else { return false };
                let stream = self.stream(self.current, home);
                let code = cuMemAllocFromPoolAsync(&raw mut ptr, bytes as usize, pool, stream);
                self.taken("cuMemAllocFromPoolAsync", code, ordered)
                    && self.keep(slot, Held::Ordered(ptr), bytes, ordered, home)
            }
        }
    }

    pub(crate) fn array(&mut self, op: Op) -> bool {
        let Some(slot) = self.empty(op.slot) else { return false };
        let kind = CUarray_format::CU_AD_FORMAT_FLOAT;
        let side = |bytes: u64| ((bytes as f64 / 4.0).sqrt() as usize).clamp(1, 32768);
        let shape = |width: usize, height: usize, depth: usize| CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: kind,
            NumChannels: 1,
            Flags: 0,
        };
        let size = |d: &CUDA_ARRAY3D_DESCRIPTOR| {
            (d.Width as u64 * 4).next_multiple_of(64) * d.Height.max(1) as u64 * d.Depth.max(1) as u64
        };
        let home = op.stream as usize;
        if op.what == What::Mipmap {
            let d = shape(side(op.bytes).max(4), side(op.bytes).max(4), 0);
            let (mut mipmap, levels) = (null_mut(), 1 + u32::from(op.other) % 3);
            let most = rounded(2 * size(&d) + 65536) + 2 * PAGE;
            let code = cuMipmappedArrayCreate(&raw mut mipmap, &raw const d, levels);
            return self.taken("cuMipmappedArrayCreate", code, most)
                && self.keep(slot, Held::Mipmap(mipmap), size(&d), most, home);
        }
        let d = match op.what {
            What::SmallArray => match op.other % 3 {
                0 => shape(1 + op.other as usize, 0, 0),
                1 => shape(64, 1 + op.other as usize, 0),
                _ => shape(256, 1 + (op.bytes % 1024) as usize, 0),
            },
            What::Array3D => shape(64, 64, ((op.bytes / (64 * 64 * 4)) as usize).clamp(1, 8192)),
            _ => shape(side(op.bytes), side(op.bytes), 0),
        };
        let (mut array, most) = (null_mut(), rounded(size(&d)) + 2 * PAGE);
        let code = cuArray3DCreate_v2(&raw mut array, &raw const d);
        self.taken("cuArray3DCreate", code, most) && self.keep(slot, Held::Array(array), size(&d), most, home)
    }

    pub(crate) fn handle(&mut self, op: Op) -> bool {
        if op.what == What::Create {
            let Some(slot) = self.empty(op.slot) else { return false };
            let (mut handle, bytes) = (0, rounded(op.bytes));
            let code = cuMemCreate(&raw mut handle, bytes as usize, &raw const *Box::new(properties(true)), 0);
            self.next_id += 1;
            let held = Held::Handle { handle, users: 1, at: None, id: self.next_id };
            return self.taken("cuMemCreate", code, bytes) && self.keep(slot, held, bytes, bytes, 0);
        }
        let wanted = |block: &Block| match (op.what, block.held) {
            (What::Map, Held::Handle { users, at, .. }) => users > 0 && at.is_none(),
            (What::Unmap | What::Retain, Held::Handle { at, .. }) => at.is_some(),
            (_, Held::Handle { users, .. }) => users > 0,
            _ => false,
        };
        let Some(slot) = self.find(op.slot, wanted) else { return false };
        let Some(block) = self.blocks[slot] else { return false };
        let Held::Handle { handle, mut users, mut at, id } = block.held else { return false };
        let size = block.bytes as usize;
        match (op.what, at) {
            (What::Map, _) => {
                let mut place = 0;
                self.must("cuMemAddressReserve", cuMemAddressReserve(&raw mut place, size, 0, 0, 0));
                self.must("cuMemMap", cuMemMap(place, size, 0, handle, 0));
                self.must("cuMemSetAccess", grant(place, size));
                at = Some(place);
            }
            (What::Unmap, Some(place)) => {
                self.must("cuMemUnmap", cuMemUnmap(place, size));
                self.must("cuMemAddressFree", cuMemAddressFree(place, size));
                at = None;
            }
            (What::Retain, Some(place)) => {
                let mut again = 0;
                let code = cuMemRetainAllocationHandle(&raw mut again, place as usize as *mut c_void);
                self.must("cuMemRetainAllocationHandle", code);
                users += 1;
            }
            (What::Release, _) => {
                self.must("cuMemRelease", cuMemRelease(handle));
                users -= 1;
            }
            _ => {
                let Some(free) = self.empty(op.slot) else { return false };
                let fd = self.export(handle);
                let mut imported = 0;
                let code = cuMemImportFromShareableHandle(&raw mut imported, fd as usize as *mut c_void, FD);
                // SAFETY: the descriptor that the export made.
                unsafe { libc::close(fd) };
                if !self.taken("cuMemImportFromShareableHandle", code, 0) {
                    return true;
                }
                let held = Held::Handle { handle: imported, users: 1, at: None, id };
                return self.keep(free, held, block.bytes, block.bytes, 0);
            }
        }
        let gone = users == 0 && at.is_none();
        self.blocks[slot] = (!gone).then_some(Block { held: Held::Handle { handle, users, at, id }, ..block });
        true
    }

    pub(crate) fn export(&self, handle: u64) -> i32 {
        let mut fd = -1;
        let code = cuMemExportToShareableHandle((&raw mut fd).cast(), handle, FD, 0);
        self.must("cuMemExportToShareableHandle", code);
        fd
    }

    pub(crate) fn prefetch(&mut self, op: Op) -> bool {
        let Some(at) = self.find(op.slot, |block| matches!(block.held, Held::Managed(_))) else { return false };
        let Some(Block { held: Held::Managed(ptr), bytes, ctx, stream, .. }) = self.blocks[at] else { return false };
        self.enter(ctx);
        let home = self.stream(ctx, stream);
        let code = match op.other % 4 {
            0 => cuMemPrefetchAsync(ptr, bytes as usize, -1, home),
            1 => cuMemsetD8Async(ptr, 1, bytes.min(4096) as usize, home),
            _ => cuMemPrefetchAsync(ptr, bytes as usize, 0, home),
        };
        self.must("cuMemPrefetchAsync", code);
        true
    }

    pub(crate) fn fill(&mut self, op: Op) -> bool {
        let wanted = |block: &Block| matches!(block.held, Held::Plain(_) | Held::Ordered(_)) && block.bytes >= 64;
        let Some(at) = self.find(op.slot, wanted) else { return false };
        let Some(Block { held: Held::Plain(ptr) | Held::Ordered(ptr), ctx, stream, .. }) = self.blocks[at] else {
            return false;
        };
        self.enter(ctx);
        let (mut ptr, mut words, mut value) = (ptr, 16_u64, 7_u32);
        let mut arguments: [*mut c_void; 3] = [(&raw mut ptr).cast(), (&raw mut words).cast(), (&raw mut value).cast()];
        let (fill, home) = (self.context(ctx).fill, self.stream(ctx, stream));
        let code = cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, home, arguments.as_mut_ptr(), null_mut());
        self.must("cuLaunchKernel", code);
        true
    }

    fn order(&self, from: CUstream, to: CUstream) {
        self.must("cuEventRecord", cuEventRecord(self.event, from));
        self.must("cuStreamWaitEvent", cuStreamWaitEvent(to, self.event, 0));
    }

    pub(crate) fn migrate(&mut self, op: Op) -> bool {
        let wanted = |block: &Block| matches!(block.held, Held::Plain(_) | Held::Ordered(_)) && block.ctx == 0;
        let Some(at) = self.find(op.slot, wanted) else { return false };
        let Some(block) = self.blocks[at] else { return false };
        self.enter(0);
        let to = op.stream as usize;
        self.order(self.stream(0, block.stream), self.stream(0, to));
        self.blocks[at] = Some(Block { stream: to, ..block });
        true
    }

    /// Gives back what a slot holds.
    pub(crate) fn free(&mut self, at: usize, in_order: bool) -> bool {
        let Some(block) = self.blocks[at].take() else { return false };
        if block.lent
            && let Some(peer) = &mut self.peer
        {
            peer.drop_all();
        }
        if !matches!(block.held, Held::Handle { .. }) {
            self.enter(block.ctx);
        }
        let stream = self.contexts[block.ctx].map_or(null_mut(), |_| self.stream(block.ctx, block.stream));
        match block.held {
            Held::Plain(ptr) | Held::Ordered(ptr) if in_order => {
                self.must("cuMemFreeAsync", cuMemFreeAsync(ptr, stream));
            }
            Held::Ordered(ptr) => {
                self.must("cuStreamSynchronize", cuStreamSynchronize(stream));
                self.must("cuMemFree", cuMemFree_v2(ptr));
            }
            Held::Plain(ptr) => self.must("cuMemFree", cuMemFree_v2(ptr)),
            Held::Managed(ptr) => self.must("cuMemFree of managed memory", cuMemFree_v2(ptr)),
            Held::Array(array) => self.must("cuArrayDestroy", cuArrayDestroy(array)),
            Held::Mipmap(array) => self.must("cuMipmappedArrayDestroy", cuMipmappedArrayDestroy(array)),
            Held::Handle { handle, users, at, .. } => {
                for _ in 0..users {
                    self.must("cuMemRelease", cuMemRelease(handle));
                }
                if let Some(place) = at {
                    self.must("cuMemUnmap", cuMemUnmap(place, block.bytes as usize));
                    self.must("cuMemAddressFree", cuMemAddressFree(place, block.bytes as usize));
                }
            }
        }
        true
    }

    pub(crate) fn mempool(&mut self, op: Op) -> bool {
        let at = op.slot as usize % self.pools.len();
        if op.what == What::PoolCreate {
            if self.pools[at].is_some() {
                return false;
            }
            let (mut pool, wanted) = (null_mut(), pool_properties(op.other.is_multiple_of(4)));
            self.must("cuMemPoolCreate", cuMemPoolCreate(&raw mut pool, &raw const wanted));
            self.pools[at] = Some(pool);
            return true;
        }
        if op.what == What::PoolCurrent {
            let mut pool = null_mut();
            // Other threads would allocate from it while it is destroyed.
            if !self.world.alone {
                return false;
            }
            match self.pools[at] {
                Some(own) if op.other & 1 == 0 => pool = own,
                _ => self.must("cuDeviceGetDefaultMemPool", cuDeviceGetDefaultMemPool(&raw mut pool, 0)),
            }
            self.must("cuDeviceSetMemPool", cuDeviceSetMemPool(0, pool));
            return true;
        }
        let mut pool = null_mut();
        match self.pools[at] {
            Some(own) => pool = own,
            None if op.what == What::PoolDestroy => return false,
            None => self.must("cuDeviceGetDefaultMemPool", cuDeviceGetDefaultMemPool(&raw mut pool, 0)),
        }
        match op.what {
            What::PoolDestroy => {
                self.pools[at] = None;
                self.must("cuMemPoolDestroy", cuMemPoolDestroy(pool));
            }
            What::PoolTrim => {
                let keep = if op.other & 1 == 0 { 0 } else { op.bytes as usize };
                self.must("cuMemPoolTrimTo", cuMemPoolTrimTo(pool, keep));
            }
            _ => {
                let mut keep = if op.other & 1 == 0 { 0 } else { u64::MAX };
                let attribute = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
                let code = cuMemPoolSetAttribute(pool, attribute, (&raw mut keep).cast());
                self.must("cuMemPoolSetAttribute", code);
            }
        }
        true
    }
}
