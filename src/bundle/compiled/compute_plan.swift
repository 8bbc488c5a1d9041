// Prints, as JSON, the device that Core ML prefers for each operation of a model: compute_plan MODEL
//
// MODEL is an .mlmodelc, or an .mlpackage, which is compiled first. Needs macOS 14.4.

import CoreML
import Foundation

struct PlannedOperation: Encodable {
    let type: String
    // None for an operation that runs nowhere, such as a constant.
    let device: String?
}

struct PlannedFunction: Encodable {
    let name: String
    var operations: [PlannedOperation] = []
}

struct Plan: Encodable {
    var functions: [PlannedFunction] = []
}

func name(of usage: MLComputePlan.DeviceUsage?) -> String? {
    guard let usage else { return nil }
    switch usage.preferred {
    case .cpu: return "cpu"
    case .gpu: return "gpu"
    case .neuralEngine: return "neural_engine"
    @unknown default: return "unknown"
    }
}

func add(_ block: MLModelStructure.Program.Block, of plan: MLComputePlan, to function: inout PlannedFunction) {
    for operation in block.operations {
        let device = name(of: plan.deviceUsage(for: operation))
        function.operations.append(PlannedOperation(type: operation.operatorName, device: device))
        for inner in operation.blocks {
            add(inner, of: plan, to: &function)
        }
    }
}

func add(_ structure: MLModelStructure, of plan: MLComputePlan, named prefix: String, to result: inout Plan) {
    switch structure {
    case .program(let program):
        for (name, function) in program.functions.sorted(by: { $0.key < $1.key }) {
            var planned = PlannedFunction(name: prefix + name)
            add(function.block, of: plan, to: &planned)
            result.functions.append(planned)
        }
    case .neuralNetwork(let network):
        var planned = PlannedFunction(name: prefix + "main")
        for layer in network.layers {
            let device = name(of: plan.deviceUsage(for: layer))
            planned.operations.append(PlannedOperation(type: layer.type, device: device))
        }
        result.functions.append(planned)
    case .pipeline(let pipeline):
        for (name, model) in zip(pipeline.subModelNames, pipeline.subModels) {
            add(model, of: plan, named: "\(prefix)\(name).", to: &result)
        }
    case .unsupported:
        break
    @unknown default:
        break
    }
}

@main
struct Main {
    static func main() async {
        guard CommandLine.arguments.count == 2 else {
            fail("usage: compute_plan MODEL")
        }
        do {
            let model = URL(fileURLWithPath: CommandLine.arguments[1])
            let isPackage = model.pathExtension == "mlpackage"
            let compiled = isPackage ? try await MLModel.compileModel(at: model) : model
            defer { if isPackage { try? FileManager.default.removeItem(at: compiled) } }
            let configuration = MLModelConfiguration()
            configuration.computeUnits = .all
            let plan = try await MLComputePlan.load(contentsOf: compiled, configuration: configuration)
            var result = Plan()
            add(plan.modelStructure, of: plan, named: "", to: &result)
            FileHandle.standardOutput.write(try JSONEncoder().encode(result))
        } catch {
            fail("\(error)")
        }
    }

    static func fail(_ message: String) -> Never {
        FileHandle.standardError.write(Data((message + "\n").utf8))
        exit(1)
    }
}
