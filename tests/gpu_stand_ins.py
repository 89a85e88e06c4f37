"""What TensorRT, pycuda and cuda-bindings answer, in NumPy: enough to run this project's own bookkeeping around them without a GPU.

They show that profiles, buffers, captures and ends are handled as meant. They are no evidence about TensorRT or CUDA.
The "engine" doubles ``x`` (batch, 8): its plan is a header and nothing else.
"""

import enum
import hashlib
import json
import types

import numpy as np

VERSION, CAPABILITY = "11.4.0.9", "9.0"
PROFILES = [((1, 8), (2, 8), (4, 8)), ((1, 8), (8, 8), (16, 8))]


class Gpu:
    """Memory by address, streams that run at once, and a log of what happened."""

    def __init__(self):
        self.memory, self.log, self.contexts, self.capturing = {}, [], 0, None

    def held(self):
        return sum(array.nbytes for array in self.memory.values())


def pycuda_driver(gpu):  # noqa: C901 - a module
    class Error(Exception):
        pass

    class Allocation:
        def __init__(self, size):
            self.address = 4096 * (len(gpu.memory) + 1)
            while self.address in gpu.memory:
                self.address += 4096
            gpu.memory[self.address] = np.full(size, 0xAB, np.uint8)

        def __int__(self):
            return self.address

        def free(self):
            del gpu.memory[self.address]

    class Pinned(np.ndarray):
        def free(self):
            gpu.log.append("unpinned")

    class Context:
        def push(self):
            gpu.contexts += 1

        @staticmethod
        def pop():
            gpu.contexts -= 1

    class Device:
        def __init__(self, number):
            assert number == 0

        count = staticmethod(lambda: 1)
        name = staticmethod(lambda: "a stand-in")
        compute_capability = staticmethod(lambda: tuple(map(int, CAPABILITY.split("."))))
        retain_primary_context = staticmethod(Context)

    class Stream:
        handle = 77

        def synchronize(self):
            assert gpu.contexts, "no context is current"

    class Event:
        def synchronize(self):
            pass

        def record(self, stream):
            pass

    def pagelocked_empty(size, dtype):
        return np.zeros(size, dtype).view(Pinned)[:]

    def upload(target, source, stream):
        assert gpu.contexts, "no context is current"
        gpu.memory[int(target)][: source.nbytes] = np.ascontiguousarray(source).view(np.uint8)

    def download(target, source, stream):
        target[...] = gpu.memory[int(source)][: target.nbytes].view(target.dtype)

    return types.SimpleNamespace(
        Error=Error,
        init=lambda: None,
        get_driver_version=lambda: 13000,
        Device=Device,
        Context=Context,
        Stream=Stream,
        Event=Event,
        mem_alloc=Allocation,
        pagelocked_empty=pagelocked_empty,
        memcpy_htod_async=upload,
        memcpy_dtoh_async=download,
    )


def cuda_driver(gpu):
    status = enum.Enum("CUresult", ["CUDA_SUCCESS", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"])
    ok = status.CUDA_SUCCESS

    def begin(stream, mode):
        gpu.capturing = []
        return (ok,)

    def end(stream):
        graph, gpu.capturing = gpu.capturing, None
        return ok, graph

    def launch(graph, stream):
        for work in graph:
            work()
        gpu.log.append("replay")
        return (ok,)

    def destroyed(graph):
        gpu.log.append("graph destroyed")
        return (ok,)

    return types.SimpleNamespace(
        CUresult=status,
        CUstream=int,
        CUstreamCaptureMode=types.SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1),
        cuStreamBeginCapture=begin,
        cuStreamEndCapture=end,
        cuGraphInstantiate=lambda graph, flags: (ok, list(graph)),
        cuGraphDestroy=lambda graph: (ok,),
        cuGraphLaunch=launch,
        cuGraphExecDestroy=destroyed,
    )


def tensorrt(gpu, output="FLOAT"):  # noqa: C901 - a module
    kinds = enum.Enum("DataType", ["FLOAT", "HALF", "BF16", "BOOL"])
    modes = enum.Enum("TensorIOMode", ["INPUT", "OUTPUT"])

    class Logger:
        ERROR, INTERNAL_ERROR = "error", "internal error"

    class Context:
        def __init__(self):
            self.shape, self.address = None, {}

        def set_optimization_profile_async(self, index, stream):
            self.index = index
            return True

        def set_input_shape(self, name, shape):
            low, _, high = PROFILES[self.index]
            assert name == "x", name
            assert all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True)), "outside the profile"
            self.shape = tuple(shape)
            return True

        def set_tensor_address(self, name, address):
            self.address[name] = address
            return True

        def get_max_output_size(self, name):
            return int(np.prod(self.shape)) * (4 if output == "FLOAT" else 2)

        def get_tensor_shape(self, name):
            return list(self.shape)

        def execute_async_v3(self, stream):
            shape = self.shape

            def work():
                x = gpu.memory[self.address["x"]][: 4 * int(np.prod(shape))].view(np.float32) * 2
                bits = {
                    "FLOAT": lambda: x,
                    "HALF": lambda: x.astype(np.float16),
                    "BF16": lambda: (x.view(np.uint32) >> 16).astype(np.uint16),
                }
                raw = bits[output]().view(np.uint8)
                gpu.memory[self.address["y"]][: raw.size] = raw

            gpu.log.append("execute" if gpu.capturing is None else "capture")
            work() if gpu.capturing is None else gpu.capturing.append(work)
            return True

    class Engine:
        num_io_tensors, num_optimization_profiles = 2, len(PROFILES)
        streamable_weights_size, weight_streaming_budget_v2, device_memory_size_v2 = 1000, 1000, 64
        get_weight_streaming_automatic_budget = staticmethod(lambda: 600)
        get_tensor_name = staticmethod(lambda place: "xy"[place])
        get_tensor_mode = staticmethod(lambda name: modes.INPUT if name == "x" else modes.OUTPUT)
        get_tensor_dtype = staticmethod(lambda name: kinds.FLOAT if name == "x" else kinds[output])
        get_tensor_profile_shape = staticmethod(lambda name, index: [list(one) for one in PROFILES[index]])
        create_execution_context = staticmethod(Context)

        def create_engine_inspector(self):
            layer = {"Name": "double", "LayerType": "kgen", "Outputs": [{"Name": "y", "Format/Datatype": "Row major linear FP32"}]}
            return types.SimpleNamespace(get_engine_information=lambda kind: json.dumps({"Layers": [layer, "a name alone"]}))

    class Runtime:
        engine_host_code_allowed = True

        def __init__(self, log):
            pass

        def deserialize_cuda_engine(self, blob):
            assert not self.engine_host_code_allowed
            return Engine()

    return types.SimpleNamespace(
        __version__=VERSION,
        ILogger=Logger,
        Runtime=Runtime,
        DataType=kinds,
        TensorIOMode=modes,
        LayerInformationFormat=types.SimpleNamespace(JSON=1),
    )


def write(folder, **changed):
    """``model.plan`` and ``engine.json`` of the stand-in's engine."""
    plan = b"ftrt" + bytes(20) + bytes(map(int, VERSION.split("."))) + bytes(64)
    (folder / "model.plan").write_bytes(plan)
    facts = {"library": "tensorrt", "version": VERSION, "cuda": "13.0", "compute_capability": CAPABILITY, "weight_streaming": False}
    (folder / "engine.json").write_text(json.dumps({**facts, "plan_sha256": hashlib.sha256(plan).hexdigest(), **changed}))
