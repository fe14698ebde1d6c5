//! Rules of starting the driver and of describing devices.

use crate::prelude::*;
use CUdevice_attribute as A;

fn count() -> i32 {
    let mut count = -1;
    ok(cuDeviceGetCount(&raw mut count));
    count
}

fn uuid(device: CUdevice) -> [u8; 16] {
    let mut uuid = CUuuid::default();
    ok(cuDeviceGetUuid_v2(&raw mut uuid, device));
    uuid.bytes.map(|b| b as u8)
}

/// The form that CUDA_VISIBLE_DEVICES and NVML use.
pub(super) fn uuid_text(device: CUdevice) -> String {
    let hex = format!("{:032x}", u128::from_be_bytes(uuid(device)));
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    let prefix = if crate::driver::limits().mig == 0 { "GPU" } else { "MIG" };
    format!("{prefix}-{}", parts.join("-"))
}

/// Plays the process that sees only what the variable lets it see: sends count and uuids.
fn report_devices(wire: &mut Wire) {
    let code = cuInit(0);
    if code == NO_DEVICE {
        wire.send_u64(0);
        return;
    }
    ok(code);
    wire.send_u64(count() as u64);
    for device in 0..count() {
        wire.send(&uuid(device));
    }
}

/// The uuids that a process sees with this value of CUDA_VISIBLE_DEVICES.
fn visible_with(rule: &str, value: &str) -> Vec<[u8; 16]> {
    let mut peer = Peer::start(rule, &[("CUDA_VISIBLE_DEVICES", Some(value))]);
    let count = peer.wire.receive_u64();
    let seen = (0..count).map(|_| peer.wire.receive()).collect();
    peer.finish();
    seen
}

pub(super) const RULES: &[Rule] = &[
    rule("init.flags_must_be_zero", "cuInit", "Flags other than zero are refused as an invalid value.", || {
        refused(cuInit(1), INVALID_VALUE);
    })
    .alone(),
    rule(
        "init.comes_first",
        "cuInit",
        "Calls before the driver is initialised are refused as not initialised.",
        || {
            let mut count = 0;
            refused(cuDeviceGetCount(&raw mut count), NOT_INITIALIZED);
            let mut device = 0;
            refused(cuDeviceGet(&raw mut device, 0), NOT_INITIALIZED);
        },
    )
    .alone(),
    rule("init.may_be_repeated", "cuInit", "Initialising again succeeds and changes nothing.", || {
        init();
        let before = count();
        init();
        assert_eq!(count(), before);
    }),
    rule("init.version_before_init", "cuDriverGetVersion", "The version can be queried before initialisation.", || {
        let mut version = 0;
        ok(cuDriverGetVersion(&raw mut version));
        assert!(version > 0);
    })
    .alone(),
    rule(
        "init.version_form",
        "cuDriverGetVersion",
        "A version is a thousand times the major plus ten times the minor number.",
        || {
            let version = driver_version();
            assert!(version >= 11000 && version % 10 == 0, "version {version}");
        },
    ),
    rule(
        "init.version_needs_result",
        "cuDriverGetVersion",
        "A NULL place for the version is an invalid value.",
        || {
            refused(cuDriverGetVersion(null_mut()), INVALID_VALUE);
        },
    ),
    rule("init.no_device", "cuInit", "With no device visible, initialisation reports that there is none.", || {
        refused(cuInit(0), NO_DEVICE);
    })
    .env(&[("CUDA_VISIBLE_DEVICES", "")]),
    rule("init.visible_minus_one", "cuInit", "An index of -1 in CUDA_VISIBLE_DEVICES hides every device.", || {
        refused(cuInit(0), NO_DEVICE);
    })
    .env(&[("CUDA_VISIBLE_DEVICES", "-1")]),
    rule("device.visible_selects", "cuDeviceGetCount", "CUDA_VISIBLE_DEVICES selects devices by index.", || {
        init();
        assert_eq!(visible_with("device.visible_selects", "1"), [uuid(1)]);
    })
    .devices(2)
    .peer(report_devices),
    rule("device.visible_orders", "cuDeviceGet", "CUDA_VISIBLE_DEVICES decides the order of the devices.", || {
        init();
        assert_eq!(visible_with("device.visible_orders", "1,0"), [uuid(1), uuid(0)]);
    })
    .devices(2)
    .peer(report_devices),
    rule(
        "device.visible_stops_at_invalid",
        "cuDeviceGetCount",
        "Only devices listed before the first invalid index are visible.",
        || {
            init();
            assert_eq!(visible_with("device.visible_stops_at_invalid", "0,97,1"), [uuid(0)]);
        },
    )
    .devices(2)
    .peer(report_devices),
    rule("device.visible_by_uuid", "cuDeviceGetCount", "CUDA_VISIBLE_DEVICES selects devices by uuid.", || {
        init();
        assert_eq!(visible_with("device.visible_by_uuid", &uuid_text(1)), [uuid(1)]);
    })
    .devices(2)
    .peer(report_devices),
    rule("device.count_needs_result", "cuDeviceGetCount", "A NULL place for the count is an invalid value.", || {
        init();
        refused(cuDeviceGetCount(null_mut()), INVALID_VALUE);
    }),
    rule("device.ordinal_in_range", "cuDeviceGet", "Ordinals from zero to count minus one name devices.", || {
        init();
        for ordinal in 0..count() {
            let mut device = -1;
            ok(cuDeviceGet(&raw mut device, ordinal));
        }
    }),
    rule("device.ordinal_out_of_range", "cuDeviceGet", "Any other ordinal is an invalid device.", || {
        init();
        let mut device = -1;
        refused(cuDeviceGet(&raw mut device, count()), INVALID_DEVICE);
        refused(cuDeviceGet(&raw mut device, -1), INVALID_DEVICE);
    }),
    rule("device.name_is_text", "cuDeviceGetName", "The name is a terminated text within the given length.", || {
        init();
        let mut name = [0x7f as c_char; 128];
        ok(cuDeviceGetName(name.as_mut_ptr(), 128, 0));
        let length = name.iter().position(|c| *c == 0);
        assert!(length.is_some_and(|l| l > 0), "an empty or endless name");
    }),
    rule("device.name_is_cut", "cuDeviceGetName", "Never more characters than the length are written.", || {
        init();
        let mut name = [0x7f as c_char; 16];
        // Some drivers refuse a short place, some cut the name: neither may write beyond it.
        let _ = cuDeviceGetName(name.as_mut_ptr(), 4, 0);
        assert!(name[4..].iter().all(|c| *c == 0x7f), "written beyond the length");
    }),
    rule("device.name_needs_device", "cuDeviceGetName", "The name of a device that does not exist is refused.", || {
        init();
        let mut name = [0 as c_char; 16];
        refused(cuDeviceGetName(name.as_mut_ptr(), 16, count()), INVALID_DEVICE);
    }),
    rule(
        "device.total_mem",
        "cuDeviceTotalMem",
        "The total memory is that which a context on the device sees.",
        || {
            context();
            let mut total = 0;
            ok(cuDeviceTotalMem_v2(&raw mut total, 0));
            assert_eq!(total, memory_info().1);
        },
    ),
    rule(
        "device.total_mem_needs_device",
        "cuDeviceTotalMem",
        "The memory of a device that does not exist is refused.",
        || {
            init();
            let mut total = 0;
            refused(cuDeviceTotalMem_v2(&raw mut total, count()), INVALID_DEVICE);
        },
    ),
    rule(
        "device.total_mem_needs_result",
        "cuDeviceTotalMem",
        "A NULL place for the total is an invalid value.",
        || {
            init();
            refused(cuDeviceTotalMem_v2(null_mut(), 0), INVALID_VALUE);
        },
    ),
    rule(
        "device.attribute_limits",
        "cuDeviceGetAttribute",
        "A warp has 32 threads, a block up to 1024 and the first grid dimension 2^31-1 blocks.",
        || {
            init();
            assert_eq!(attribute(A::CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
            assert_eq!(attribute(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
            assert_eq!(attribute(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X), i32::MAX);
            assert_eq!(attribute(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y), 65535);
            assert_eq!(attribute(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z), 64);
        },
    ),
    rule(
        "device.attribute_unified",
        "cuDeviceGetAttribute",
        "A 64-bit Linux device shares one address space with the host.",
        || {
            init();
            assert_eq!(attribute(A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING), 1);
            assert_eq!(attribute(A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY), 1);
        },
    ),
    rule(
        "device.attribute_unknown",
        "cuDeviceGetAttribute",
        "An attribute that does not exist is an invalid value.",
        || {
            init();
            let mut value = 0;
            refused(cuDeviceGetAttribute(&raw mut value, CUdevice_attribute_enum(100_000), 0), INVALID_VALUE);
            refused(cuDeviceGetAttribute(&raw mut value, CUdevice_attribute_enum(0), 0), INVALID_VALUE);
        },
    ),
    rule(
        "device.attribute_needs_device",
        "cuDeviceGetAttribute",
        "An attribute of a device that does not exist is refused.",
        || {
            init();
            let mut value = 0;
            refused(cuDeviceGetAttribute(&raw mut value, A::CU_DEVICE_ATTRIBUTE_WARP_SIZE, count()), INVALID_DEVICE);
        },
    ),
    rule(
        "device.attribute_needs_result",
        "cuDeviceGetAttribute",
        "A NULL place for the value is an invalid value.",
        || {
            init();
            refused(cuDeviceGetAttribute(null_mut(), A::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), INVALID_VALUE);
        },
    ),
    rule(
        "device.capability_agrees",
        "cuDeviceComputeCapability",
        "The compute capability is that of the two attributes.",
        || {
            init();
            let (mut major, mut minor) = (0, 0);
            ok(cuDeviceComputeCapability(&raw mut major, &raw mut minor, 0));
            assert_eq!(major, attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
            assert_eq!(minor, attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
        },
    ),
    rule("device.uuid_stable", "cuDeviceGetUuid", "A device has a uuid, the same whenever it is queried.", || {
        init();
        assert_ne!(uuid(0), [0; 16]);
        assert_eq!(uuid(0), uuid(0));
    }),
    rule("device.uuid_distinct", "cuDeviceGetUuid", "Two devices have two uuids.", || {
        init();
        assert_ne!(uuid(0), uuid(1));
    })
    .devices(2),
    rule("device.uuid_needs_device", "cuDeviceGetUuid", "The uuid of a device that does not exist is refused.", || {
        init();
        let mut uuid = CUuuid::default();
        refused(cuDeviceGetUuid_v2(&raw mut uuid, count()), INVALID_DEVICE);
    }),
    rule("device.pci_round_trip", "cuDeviceGetByPCIBusId", "The PCI bus id of a device leads back to it.", || {
        init();
        let mut id = [0 as c_char; 32];
        ok(cuDeviceGetPCIBusId(id.as_mut_ptr(), 32, 0));
        let mut device = -1;
        ok(cuDeviceGetByPCIBusId(&raw mut device, id.as_ptr()));
        assert_eq!(device, 0);
    }),
    rule(
        "device.pci_form",
        "cuDeviceGetPCIBusId",
        "The PCI bus id reads domain:bus:device.function and agrees with the attributes.",
        || {
            init();
            let mut id = [0 as c_char; 32];
            ok(cuDeviceGetPCIBusId(id.as_mut_ptr(), 32, 0));
            // SAFETY: the driver has terminated the text within the 32 characters, or the scan ends at the last zero.
            let text = unsafe { CStr::from_ptr(id.as_ptr()) }.to_string_lossy().to_lowercase();
            let want = format!(
                "{:04x}:{:02x}:{:02x}.0",
                attribute(A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                attribute(A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
                attribute(A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)
            );
            assert!(text.ends_with(&want), "{text}, attributes say {want}");
        },
    ),
    rule(
        "device.pci_malformed",
        "cuDeviceGetByPCIBusId",
        "A text that is no PCI bus id of a device is refused.",
        || {
            init();
            let mut device = -1;
            refused_by_any(
                cuDeviceGetByPCIBusId(&raw mut device, c"nonsense".as_ptr()),
                &[INVALID_VALUE, INVALID_DEVICE],
            );
            refused(cuDeviceGetByPCIBusId(null_mut(), c"0000:01:00.0".as_ptr()), INVALID_VALUE);
        },
    ),
];
