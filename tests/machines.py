"""Machines that this one is not: as environments, and as what their systems say of themselves."""

from accel_helpers.environment.declared import Declared
from accel_helpers.records import Environment, Gpu

CORE = {
    "torch": "2.13.0+cpu",
    "transformers": "5.24.0",
    "numpy": "2.4.6",
    "onnx": "1.23.2",
    "openvino": "2026.4.1",
    "onnxruntime": "1.32.0",
}
DECLARED = Declared(
    python="<3.15,>=3.11",
    requires=(
        *("torch==2.13.0", "transformers~=5.24", "onnx~=1.23", "openvino~=2026.4", "numpy~=2.4", "plotly~=7.1"),
        'tensorrt-rtx==1.7.1.116; sys_platform == "linux" and platform_machine == "x86_64"',
        *('onnxruntime~=1.32.0; extra == "cpu"', 'onnxruntime-gpu~=1.31.1; extra == "gpu"'),
        *('tensorrt~=11.4; sys_platform == "linux" and extra == "gpu"', 'pycuda~=2026.1; extra == "gpu"'),
        *('openvino-genai~=2026.4; extra == "llm"', 'xllamacpp==2026.10.11549; extra == "llm"', 'pytest~=9.2; extra == "dev"'),
    ),
    extras=("cpu", "gpu", "llm", "dev"),
)


def gpu(name, capability, driver="580.95.05", memory=24 * 2**30):
    return Gpu(name, memory, capability, driver)


def machine(**changes):
    """A healthy 16-core machine with AMX, 64 GiB and no GPU, everything installed."""
    values = {
        "cpu": "Intel(R) Xeon(R) Platinum 8488C",
        "isa": ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"),
        "cpus": 16,
        "cpus_online": 16,
        "memory_bytes": 64 * 2**30,
        "os": "Linux 6.1.0 x86_64",
        "python": "3.11.7",
        "packages": {**CORE, "tensorrt-rtx": "1.7.1.116", "openvino-genai": "2026.4.1", "xllamacpp": "2026.10.11549"},
        "tools": {"c++": "g++ 12.2.0", "python headers": "3.11.7"},
    }
    return Environment(**{**values, **changes})


def with_gpu(*gpus, without=(), cuda="13.0", **changes):
    """The same machine with GPUs and the packages for them."""
    packages = {**machine().packages, "torch": "2.13.0", "onnxruntime-gpu": "1.31.1", "tensorrt": "11.4.0", "tensorrt-cu13": "11.4.0"}
    packages = {**packages, "nvidia-cuda-runtime": "13.0.96", "nvidia-cudnn-cu13": "9.15.0", "pycuda": "2026.1"}
    packages = {name: version for name, version in packages.items() if name not in ("onnxruntime", *without)}
    return machine(**{"gpus": gpus, "cuda": cuda, "cudnn": "9.15.0", "packages": packages, **changes})


AMX = machine()
ZEN4 = machine(cpu="AMD EPYC 9654", isa=("avx2", "avx512f", "avx512_vnni", "avx512_bf16"))
ICE_LAKE = machine(cpu="Intel(R) Xeon(R) Platinum 8375C", isa=("avx2", "avx512f", "avx512_vnni"))
ALDER_LAKE = machine(cpu="12th Gen Intel(R) Core(TM) i7-12700H", isa=("avx2", "avx_vnni"))
SKYLAKE_SERVER = machine(cpu="Intel(R) Xeon(R) Platinum 8124M", isa=("avx2", "avx512f"))
OLD_LAPTOP = machine(cpu="Intel(R) Core(TM) i5-7200U", isa=("avx2",), cpus=4, cpus_online=4, memory_bytes=8 * 2**30)
ANCIENT = machine(cpu="Intel(R) Core(TM)2 Duo", isa=())
GRAVITON3 = machine(
    cpu="Arm Neoverse V1", isa=("neon", "asimdhp", "asimddp", "i8mm", "bf16", "sve"), os="Linux 6.1.0 aarch64", packages=CORE
)
RASPBERRY = machine(cpu="Raspberry Pi 5 (Arm Cortex-A76)", isa=("neon", "asimdhp", "asimddp"), os="Linux 6.6 aarch64", packages=CORE)
RASPBERRY_3 = machine(cpu="Raspberry Pi 3", isa=("neon",), os="Linux 6.6 aarch64", packages=CORE)
APPLE = machine(cpu="Apple M2", isa=("neon", "asimdhp", "asimddp", "i8mm", "bf16"), os="Darwin 23.5.0 arm64", packages=CORE)
RTX_4060 = with_gpu(gpu("NVIDIA GeForce RTX 4060", "8.9", memory=8 * 2**30), isa=("avx2", "avx_vnni"))
RTX_5090 = with_gpu(gpu("NVIDIA GeForce RTX 5090", "12.0"))
T4 = with_gpu(gpu("Tesla T4", "7.5", memory=16 * 2**30))
V100 = with_gpu(gpu("Tesla V100-SXM2-16GB", "7.0"), cuda="12.6")
GTX_1080 = with_gpu(gpu("NVIDIA GeForce GTX 1080", "6.1"), cuda="12.6")
A100 = with_gpu(gpu("NVIDIA A100-SXM4-80GB", "8.0"))
H200 = with_gpu(gpu("NVIDIA H200", "9.0", memory=141 * 2**30))
JETSON = with_gpu(
    gpu("Orin (nvgpu)", "8.7", "540.4.0", 8 * 2**30),
    cuda="12.6",
    cpu="NVIDIA Jetson Orin Nano Developer Kit (Arm Cortex-A78AE)",
    isa=("neon", "asimdhp", "asimddp"),
    os="Linux 5.15.148-tegra aarch64",
)
THOR = with_gpu(gpu("NVIDIA Thor", "11.0", memory=128 * 2**30), cpu="Arm Neoverse", isa=("neon",), os="Linux 6.8.12-tegra aarch64")
EVERY = {name: one for name, one in list(globals().items()) if isinstance(one, Environment)}

CPUINFO = {
    "xeon": (
        "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Platinum 8488C\n"
        "flags\t\t: fpu sse2 avx2 avx512f avx512_vnni avx512_bf16 amx_bf16 amx_tile amx_int8\n\n"
        "processor\t: 1\nmodel name\t: Intel(R) Xeon(R) Platinum 8488C\n"
        "flags\t\t: fpu sse2 avx2 avx512f avx512_vnni avx512_bf16 amx_bf16 amx_tile amx_int8\n"
    ),
    "graviton": (
        "processor\t: 0\nBogoMIPS\t: 2100.00\nFeatures\t: fp asimd evtstrm aes asimdhp cpuid asimddp sve i8mm bf16\n"
        "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd40\n"
    ),
    "unknown arm": "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x99\nCPU part\t: 0x123\n",
    "pi 32 bit": (
        "processor\t: 0\nmodel name\t: ARMv7 Processor rev 3 (v7l)\nFeatures\t: half thumb neon vfpv4\nCPU implementer\t: 0x41\n"
        "CPU part\t: 0xd08\n"
    ),
    "big and little": (
        "processor\t: 0\nmodel name\t: X\nflags\t: avx2 avx_vnni avx512f\n\nprocessor\t: 1\nmodel name\t: X\nflags\t: avx2 avx_vnni\n"
    ),
    "risc-v": "processor\t: 0\nhart\t\t: 0\nisa\t\t: rv64imafdc\nuarch\t\t: sifive,u74-mc\n",
    "power": "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n",
    "empty": "",
    "noise": ": : :\n::\nflags\nmodel name\n\x00\x00\xff\n" + "x" * 5000,
}
SYSCTL = (
    "machdep.cpu.cores_per_package: 8\nmachdep.cpu.brand_string: Apple M2\nhw.optional.neon: 1\nhw.optional.arm.FEAT_FP16: 1\n"
    "hw.optional.arm.FEAT_DotProd: 1\nhw.optional.arm.FEAT_I8MM: 1\nhw.optional.arm.FEAT_BF16: 1\nhw.optional.arm.FEAT_SME: 0\n"
)
