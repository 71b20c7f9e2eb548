import { LabIcon } from '@jupyterlab/ui-components';

import gpuSvg from '../style/icons/gpu.svg';

export const gpuIcon = new LabIcon({ name: 'jupyter-gpuprof:gpu', svgstr: gpuSvg });
