//! What a virtual device says about itself: attributes, names, ids, limits, and which devices a
//! process sees. Values are those of a data-centre card of the configured compute capability, and
//! never claim what the virtual GPU refuses to do. Pure: no state, no system call.

use crate::config::{self, Config, ManagedMemory, Rdma};
use weir_cuda::CUdevice_attribute;
use weir_cuda::{CUdevice_P2PAttribute, CUlimit};
use weir_settings::limit::prefixed_uuid;

/// The PCI bus of device 0; the others follow at [`BUS_STEP`].
const FIRST_BUS: i32 = 7;
const BUS_STEP: i32 = 3;

/// The combined PCI ids: a vendor id that no vendor has, so that nobody takes this for hardware.
pub(crate) const PCI_DEVICE_ID: i32 = 0x0001_fff0;

/// What differs between the generations of devices.
struct Generation {
    multiprocessors: i32,
    threads_per_multiprocessor: i32,
    blocks_per_multiprocessor: i32,
    shared_per_multiprocessor: i32,
    l2: i32,
    memory_clock: i32,
    bus_width: i32,
}

fn generation(compute: (i32, i32)) -> Generation {
    const KIB: i32 = 1 << 10;
    const MIB: i32 = 1 << 20;
    let (multiprocessors, threads, blocks, shared, l2, memory_clock, bus_width) = match compute {
        (10.., _) => (148, 2048, 32, 228 * KIB, 126 * MIB, 3_996_000, 8192),
        (9, _) => (132, 2048, 32, 228 * KIB, 50 * MIB, 2_619_000, 5120),
        (8, 0) => (108, 2048, 32, 164 * KIB, 40 * MIB, 1_215_000, 5120),
        (8, 9) => (142, 1536, 24, 100 * KIB, 96 * MIB, 9_001_000, 384),
        // The one on the board of a Jetson.
        (8, 7) => (16, 1536, 16, 164 * KIB, 4 * MIB, 3_199_000, 256),
        (8, _) => (84, 1536, 16, 100 * KIB, 6 * MIB, 7_251_000, 384),
        (7, 5) => (40, 1024, 16, 64 * KIB, 4 * MIB, 5_001_000, 256),
        (7, _) => (80, 2048, 32, 96 * KIB, 6 * MIB, 877_000, 4096),
        (6, 1) => (20, 2048, 32, 96 * KIB, 2 * MIB, 5_005_000, 256),
        _ => (56, 2048, 32, 64 * KIB, 4 * MIB, 715_000, 4096),
    };
    Generation {
        multiprocessors,
        threads_per_multiprocessor: threads,
        blocks_per_multiprocessor: blocks,
        shared_per_multiprocessor: shared,
        l2,
        memory_clock,
        bus_width,
    }
}

/// The value of an attribute on a physical device; none for one that the configured driver does not
/// know, which is CUDA_ERROR_INVALID_VALUE to the caller.
#[rustfmt::skip]
#[allow(clippy::match_same_arms)] // Values that are equal by chance stay with their own kind.
pub(crate) fn device_attribute(config: &Config, ordinal: u32, attribute: CUdevice_attribute) -> Option<i32> {
    type A = CUdevice_attribute;
    let (major, minor) = config.compute;
    let at_least = |compute: (i32, i32)| i32::from(config.compute >= compute);
    let vmm = i32::from(config.vmm);
    let mut has = generation(config.compute);
    has.multiprocessors = config.multiprocessors.unwrap_or(has.multiprocessors);
    // The headers of CUDA 12 end at 143: an older driver refuses what came later.
    if config.driver_version < 13000 && attribute.0 > 143 {
        return None;
    }
    Some(match attribute {
        A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        | A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X
        | A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y => 1024,
        A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => 64,
        A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X | A::CU_DEVICE_ATTRIBUTE_MAX_PITCH => i32::MAX,
        A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y | A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => 65535,
        A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => 48 << 10,
        A::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY => 64 << 10,
        A::CU_DEVICE_ATTRIBUTE_WARP_SIZE => 32,
        A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK
        | A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR => 64 << 10,
        A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE => 1_410_000,
        A::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT | A::CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT => 512,
        A::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT => 32,
        A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => has.multiprocessors,
        A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE => has.memory_clock,
        A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH => has.bus_width,
        A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE => has.l2,
        A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => has.threads_per_multiprocessor,
        A::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR => has.blocks_per_multiprocessor,
        A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => has.shared_per_multiprocessor,
        A::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK => at_least((8, 0)) << 10,
        A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => match config.compute {
            (8.., _) => has.shared_per_multiprocessor - (1 << 10),
            (7, _) => has.shared_per_multiprocessor,
            _ => 48 << 10,
        },
        A::CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE => at_least((8, 0)) * (has.l2 / 4 * 3),
        A::CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE => at_least((8, 0)) * (128 << 20),
        A::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT => 3,
        A::CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO => match config.compute {
            (6..=10, 0) => 2,
            _ => 64,
        },
        A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => major,
        A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => minor,

        A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => pci_bus(ordinal),
        A::CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID => PCI_DEVICE_ID,
        A::CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID => ordinal as i32,

        A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH => 131_072,
        A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT => 65_536,
        A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT => 65_536,
        A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH => 2_097_120,
        A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH => 1 << 28,
        A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH => 16_384,
        A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE => 8192,
        A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE => 32_768,
        A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH => 32_768,
        A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS => 2048,
        A::CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS
        | A::CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS => 2046,

        // What the virtual GPU does.
        A::CU_DEVICE_ATTRIBUTE_GPU_OVERLAP
        | A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
        | A::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS
        | A::CU_DEVICE_ATTRIBUTE_ECC_ENABLED
        | A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        | A::CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER
        | A::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        | A::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS
        | A::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
        | A::CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED => 1,
        A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED => i32::from(config.pools),
        A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY => i32::from(config.managed != ManagedMemory::None),
        A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS => {
            at_least((6, 0)) * i32::from(config.managed == ManagedMemory::Full)
        }
        A::CU_DEVICE_ATTRIBUTE_INTEGRATED => i32::from(config.integrated),
        A::CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT => i32::from(config.display),
        A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED => i32::from(config.rdma != Rdma::Off),
        A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED => vmm * i32::from(config.rdma != Rdma::Off),
        A::CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH => at_least((6, 0)),
        A::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR => at_least((7, 0)),
        A::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH => at_least((9, 0)),
        A::CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT => if major >= 9 { 4 } else { 1 },
        A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED => vmm,
        A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED => {
            i32::from(config.vmm && config.maps_host_memory())
        }
        // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.
        A::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES => i32::from(config.pools),
        // CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST; CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER.
        A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS => i32::from(config.rdma != Rdma::Off),
        A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING => 100 * i32::from(config.rdma != Rdma::Off),

        // What it does not do, and ids that are zero: compute mode
        // default, PCI domain and device 0, no Windows, no graphics, no fabric, no multicast, no
        // compression, no decompression, no sparse or deferred arrays, no dma-buf, no
        // tensor maps, no MPS, no coherent host page tables.
        A::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE
        | A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID
        | A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID
        | A::CU_DEVICE_ATTRIBUTE_TCC_DRIVER
        | A::CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD
        | A::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS
        | A::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1
        | A::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1
        | A::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1
        | A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH
        | A::CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES
        | A::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES
        | A::CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST
        | A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_NUMA_CONFIG
        | A::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_MPS_ENABLED
        | A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID
        | A::CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK
        | A::CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH
        | A::CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID
        | A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_ATOMIC_REDUCTION_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_MAX_OVERSIZED_SHARED_MEMORY_PER_BLOCK
        | A::CU_DEVICE_ATTRIBUTE_D3D12_CIG_STREAMS_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_DMA_BUF_MMAP_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_UNICAST_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_MULTICAST_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_COUNTED_OPS_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_UNICAST_ACCESS_ON_OWNER_DEVICE_SUPPORTED
        | A::CU_DEVICE_ATTRIBUTE_LOGICAL_ENDPOINT_SUPPORTED_HANDLE_TYPES
        | A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_LOCALIZED_MEMORY_SUPPORTED => 0,
        // The memory of the device is no NUMA node of the host.
        A::CU_DEVICE_ATTRIBUTE_NUMA_ID => -1,
        A::CU_DEVICE_ATTRIBUTE_LOCALITY_DOMAIN_COUNT => 1,
        A::CU_DEVICE_ATTRIBUTE_LOCALITY_DOMAIN_MULTIPROCESSOR_COUNT => has.multiprocessors,
        _ => return None,
    })
}

/// What holds between two different devices; none for an attribute that does not exist.
pub(crate) fn p2p_attribute(config: &Config, attribute: CUdevice_P2PAttribute) -> Option<i32> {
    type A = CUdevice_P2PAttribute;
    match attribute {
        A::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK => Some(0),
        A::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
        | A::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
        | A::CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED => Some(i32::from(config.p2p)),
        A::CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED => {
            (config.driver_version >= 13000).then_some(0)
        }
        _ => None,
    }
}

/// The value of a limit in a fresh context. None for a limit that does not exist (INVALID_VALUE); a
/// device may still not support one that does, see [`limit_supported`].
pub(crate) fn limit_default(limit: CUlimit) -> Option<usize> {
    Some(match limit {
        CUlimit::CU_LIMIT_STACK_SIZE => 1 << 10,
        CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE => 1 << 20,
        CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE => 8 << 20,
        CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH => 2,
        CUlimit::CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT => 2048,
        CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY => 64,
        CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE
        | CUlimit::CU_LIMIT_SHMEM_SIZE
        | CUlimit::CU_LIMIT_CIG_ENABLED
        | CUlimit::CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED
        | CUlimit::CU_LIMIT_PER_BLOCK_MEMORY_SIZE => 0,
        _ => return None,
    })
}

/// Whether a device has this limit: setting or reading another one is UNSUPPORTED_LIMIT.
pub(crate) fn limit_supported(config: &Config, limit: CUlimit) -> bool {
    match limit {
        // Synchronising on the device went away with compute capability 9.
        CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH => config.compute < (9, 0),
        CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY | CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE => {
            config.compute >= (8, 0)
        }
        // Graphics interoperation, which there is none of.
        CUlimit::CU_LIMIT_SHMEM_SIZE
        | CUlimit::CU_LIMIT_CIG_ENABLED
        | CUlimit::CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED
        | CUlimit::CU_LIMIT_PER_BLOCK_MEMORY_SIZE => false,
        _ => limit_default(limit).is_some(),
    }
}

/// The name of a device.
pub(crate) fn device_name(config: &Config) -> &str {
    &config.name
}

fn pci_bus(ordinal: u32) -> i32 {
    FIRST_BUS + BUS_STEP * ordinal as i32
}

/// Where a device sits, as cuDeviceGetPCIBusId writes it: `0000:07:00.0`.
pub(crate) fn pci_bus_id(ordinal: u32) -> String {
    format!("0000:{:02x}:00.0", pci_bus(ordinal))
}

/// The id of a device of this process: the same in every process and on every host with the same
/// VGPU_NAME. Of a device that is an instance of another: its own id.
pub(crate) fn device_uuid(ordinal: u32) -> [u8; 16] {
    visible_uuid(config::get(), ordinal)
}

/// The id of the device itself, which the instances that it is divided into share.
pub(crate) fn parent_uuid(ordinal: u32) -> [u8; 16] {
    uuid_of(&config::get().name, ordinal)
}

fn visible_uuid(config: &Config, ordinal: u32) -> [u8; 16] {
    if config.mig { uuid_of(&format!("{}/0/0", config.name), ordinal) } else { uuid_of(&config.name, ordinal) }
}

fn uuid_of(name: &str, ordinal: u32) -> [u8; 16] {
    // FNV-1a over the name, spread by a finaliser for each half and ordinal.
    let name = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let half = |salt: u64| {
        let mut x = name ^ (u64::from(ordinal) << 1 | salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        u128::from(x ^ (x >> 31))
    };
    let mut uuid = (half(0) << 64 | half(1)).to_be_bytes();
    // Version 4, variant 1, as every random uuid.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// What tools write before the id of a visible device.
fn uuid_prefix(config: &Config) -> &'static str {
    if config.mig { "MIG-" } else { "GPU-" }
}

/// The physical devices that a process sees under this CUDA_VISIBLE_DEVICES, in its order. Unset:
/// all. Each entry is an index or the beginning of a uuid that only one device has; the first entry
/// that names no device ends the list; a device named twice leaves none. CUDA shows a process one instance of
/// a divided device and no more.
pub(crate) fn visible_devices(config: &Config, variable: Option<&str>) -> Vec<u32> {
    let mut visible = listed_devices(config, variable);
    if config.mig {
        visible.truncate(1);
    }
    visible
}

fn listed_devices(config: &Config, variable: Option<&str>) -> Vec<u32> {
    let Some(list) = variable else {
        return (0..config.devices).collect();
    };
    let mut visible = Vec::new();
    for entry in list.split(',') {
        let Some(device) = named_device(config, entry.trim()) else {
            break;
        };
        if visible.contains(&device) {
            return Vec::new();
        }
        visible.push(device);
    }
    visible
}

fn named_device(config: &Config, entry: &str) -> Option<u32> {
    // An instance has a name of its own; its parent's names no device.
    if entry.get(..4).is_some_and(|p| p.eq_ignore_ascii_case(uuid_prefix(config))) {
        let wanted = entry.to_ascii_lowercase();
        let mut matching = (0..config.devices).filter(|ordinal| {
            let uuid = prefixed_uuid(uuid_prefix(config), visible_uuid(config, *ordinal));
            wanted.len() > 4 && uuid.to_ascii_lowercase().starts_with(&wanted)
        });
        return matching.next().filter(|_| matching.next().is_none());
    }
    if !entry.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    entry.parse().ok().filter(|index| *index < config.devices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn devices(count: u32) -> Config {
        Config { devices: count, ..Config::default() }
    }

    fn attribute(config: &Config, ordinal: u32, number: u32) -> Option<i32> {
        device_attribute(config, ordinal, weir_cuda::CUdevice_attribute_enum(number))
    }

    #[test]
    fn a_driver_knows_every_attribute_of_its_headers_and_no_other() {
        let old = Config::default();
        let new = Config { driver_version: 13000, ..Config::default() };
        for number in 1..=143 {
            assert!(attribute(&old, 0, number).is_some(), "{number}");
        }
        for number in (1..=158).chain([161]) {
            assert!(attribute(&new, 0, number).is_some(), "{number}");
        }
        for number in [144, 158, 161] {
            assert_eq!(attribute(&old, 0, number), None);
        }
        for number in [0, 159, 160, 162, 1000, u32::MAX] {
            assert_eq!(attribute(&new, 0, number), None, "{number}");
        }
    }

    #[test]
    fn attributes_follow_the_configuration() {
        let config = Config { compute: (9, 0), vmm: false, ..Config::default() };
        assert_eq!(attribute(&config, 0, 75), Some(9));
        assert_eq!(attribute(&config, 0, 76), Some(0));
        assert_eq!(attribute(&config, 0, 120), Some(1), "clusters came with 9.0");
        let older = Config { driver_version: 12010, ..Config::default() };
        assert_eq!(
            (attribute(&older, 0, 102), attribute(&older, 0, 141)),
            (Some(1), Some(0)),
            "host nodes came with 12.2"
        );
        for number in [102, 103, 110, 141] {
            assert_eq!(attribute(&config, 0, number), Some(0), "no VMM: {number}");
            assert_eq!(attribute(&Config::default(), 0, number), Some(1), "{number}");
        }
        assert_eq!(attribute(&Config::default(), 0, 120), Some(0));
        assert_eq!(attribute(&Config::default(), 0, 128), Some(0), "no fabric handles");
        assert_eq!(attribute(&Config::default(), 0, 115), Some(1), "memory pools");
    }

    #[test]
    fn devices_have_places_and_ids_of_their_own() {
        let mut buses = HashSet::new();
        let mut uuids = HashSet::new();
        for ordinal in 0..config::MAX_DEVICES {
            let bus = attribute(&devices(64), ordinal, 33).expect("the bus");
            assert!(bus < 256);
            assert_eq!(pci_bus_id(ordinal), format!("0000:{bus:02x}:00.0"));
            assert!(buses.insert(bus));
            assert!(uuids.insert(uuid_of("Virtual GPU", ordinal)));
        }
        assert_eq!(pci_bus_id(0), "0000:07:00.0");
        assert_ne!(uuid_of("a", 0), uuid_of("b", 0));
    }

    #[test]
    fn uuids_look_like_version_4_and_never_change() {
        let uuid = uuid_of("Virtual GPU", 0);
        assert_eq!(uuid, uuid_of("Virtual GPU", 0));
        assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (4, 2));
        let text = prefixed_uuid("GPU-", uuid);
        let groups: Vec<_> = text.split('-').map(str::len).collect();
        assert_eq!(groups, [3, 8, 4, 4, 4, 12]);
    }

    #[test]
    fn visible_devices_are_named_by_index() {
        let seen = |list| visible_devices(&devices(4), list);
        assert_eq!(seen(None), [0, 1, 2, 3]);
        assert_eq!(seen(Some("2,0")), [2, 0]);
        assert_eq!(seen(Some(" 1 , 3 ")), [1, 3]);
        assert!(seen(Some("")).is_empty());
        assert!(seen(Some("-1")).is_empty());
        assert_eq!(seen(Some("1,-1,2")), [1]);
        assert_eq!(seen(Some("0,9,2")), [0]);
        assert_eq!(seen(Some("3,no,2")), [3]);
        assert_eq!(seen(Some("1,,2")), [1]);
        assert!(seen(Some("NoDevFiles")).is_empty());
        assert!(seen(Some("0,1,0")).is_empty());
        assert_eq!(seen(Some("0,9,0")), [0], "what follows an invalid entry is not looked at");
    }

    #[test]
    fn visible_devices_are_named_by_the_beginning_of_a_uuid() {
        let config = devices(4);
        let whole = |ordinal| prefixed_uuid("GPU-", uuid_of(&config.name, ordinal));
        let seen = |list: &str| visible_devices(&config, Some(list));
        assert_eq!(seen(&format!("{},0", whole(3))), [3, 0]);
        assert_eq!(seen(&whole(1)[..16]), [1]);
        assert_eq!(seen(&whole(1).to_uppercase()), [1]);
        assert!(seen("GPU-").is_empty(), "every device begins like that");
        assert!(seen(&format!("{}0", whole(1))).is_empty());
        assert!(seen(&format!("{},1", whole(1))).is_empty(), "the same device twice");
        assert!(seen("GPU-zz").is_empty());
        // With 64 devices some share their first digit: such a beginning names none.
        let many = devices(64);
        assert!(visible_devices(&many, Some(&whole(0)[..5])).is_empty());
    }

    #[test]
    fn limits_exist_or_not_and_are_supported_or_not() {
        let config = Config::default();
        for number in 0..11 {
            assert!(limit_default(weir_cuda::CUlimit_enum(number)).is_some());
        }
        assert_eq!(limit_default(weir_cuda::CUlimit_enum(11)), None);
        assert!(limit_supported(&config, CUlimit::CU_LIMIT_STACK_SIZE));
        assert!(!limit_supported(&config, CUlimit::CU_LIMIT_CIG_ENABLED));
        assert!(!limit_supported(&config, weir_cuda::CUlimit_enum(11)));
    }
}
